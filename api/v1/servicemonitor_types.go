package v1

// ServiceMonitorSpec configures a ServiceMonitor for Prometheus Operator. Nothing is created until the CRD
// servicemonitors.monitoring.coreos.com is installed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || !has(self.scrapeTimeout) || !self.interval.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$') || !self.scrapeTimeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$') || self.interval == \"\" || self.scrapeTimeout == \"\" || duration(self.scrapeTimeout) <= duration(self.interval)",fieldPath=".scrapeTimeout",message="must not be longer than interval: lower it or raise interval"
type ServiceMonitorSpec struct {
	// Enabled creates the ServiceMonitor, and the PrometheusRule if there is one.
	//
	// The default is stated at the field that contains this block.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Interval between scrapes, such as 15s. Default: that of Prometheus.
	//
	// The units are y, w, d, h, m, s and ms.
	// +optional
	Interval PrometheusDuration `json:"interval,omitempty"`
	// ScrapeTimeout of a scrape, at most the interval. Default: that of Prometheus.
	// +optional
	ScrapeTimeout PrometheusDuration `json:"scrapeTimeout,omitempty"`
	// HonorLabels keeps labels of the metrics that collide with labels of the target. Default false.
	//
	// If false, Prometheus renames them to exported_NAME, such as exported_pod.
	// +optional
	HonorLabels *bool `json:"honorLabels,omitempty"`
	// AdditionalLabels of the ServiceMonitor and the PrometheusRule.
	//
	// They are for a Prometheus that selects by label, often by the label release.
	// +optional
	AdditionalLabels Labels `json:"additionalLabels,omitempty"`
	// Relabelings of the targets before they are scraped. Default none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Relabelings []RelabelConfig `json:"relabelings,omitempty"`
}

// PrometheusDuration is a duration in the format of Prometheus, or empty. Its digits are bounded so that their sum is
// below the 292 years that Prometheus reads.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,2}y)?([0-9]{1,3}w)?([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,12}ms)?)$')",message="must be a Prometheus duration, such as 30s or 1m30s"
type PrometheusDuration = string

// RelabelConfig is one relabeling step. It has the fields of RelabelConfig of Prometheus Operator, whose own type has a
// default in its schema and no bounds.
//
// +kubebuilder:validation:XValidation:rule="(has(self.targetLabel) && self.targetLabel != \"\") || (has(self.action) && !(self.action.lowerAscii() in [\"\", 'replace', 'hashmod', 'lowercase', 'uppercase', 'keepequal', 'dropequal']))",message="this action needs targetLabel: set it to the label to write"
// +kubebuilder:validation:XValidation:rule="!has(self.action) || self.action.lowerAscii() != 'hashmod' || (has(self.modulus) && self.modulus > 0)",message="the action hashmod needs a modulus above 0"
type RelabelConfig struct {
	// SourceLabels are the labels whose values are joined and matched.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	SourceLabels []string `json:"sourceLabels,omitempty"`
	// Separator between the joined values. Default ;.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Separator *string `json:"separator,omitempty"`
	// TargetLabel is the label that gets the result.
	//
	// The actions replace, hashmod, lowercase, uppercase, keepequal and dropequal need it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	TargetLabel string `json:"targetLabel,omitempty"`
	// Regex that the joined values must match. Default (.*).
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="''.matches(self) in [true, false]",message="must be a regular expression in RE2 syntax"
	Regex string `json:"regex,omitempty"`
	// Modulus of the hash for the action hashmod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Modulus int64 `json:"modulus,omitempty"`
	// Replacement for the action replace; $1 is the first group. Default $1.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Replacement *string `json:"replacement,omitempty"`
	// Action for a match. Default replace.
	// +optional
	// +kubebuilder:validation:Enum="";replace;Replace;keep;Keep;drop;Drop;hashmod;HashMod;labelmap;LabelMap;labeldrop;LabelDrop;labelkeep;LabelKeep;lowercase;Lowercase;uppercase;Uppercase;keepequal;KeepEqual;dropequal;DropEqual
	Action string `json:"action,omitempty"`
}
