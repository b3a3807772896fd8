package v1

// ServiceMonitorSpec configures a ServiceMonitor, by which Prometheus Operator finds metrics. Where the
// cluster lacks its kind, servicemonitors.monitoring.coreos.com, nothing is created, whatever is
// enabled, until that is installed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || !has(self.scrapeTimeout) || !self.interval.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$') || !self.scrapeTimeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$') || self.interval == \"\" || self.scrapeTimeout == \"\" || duration(self.scrapeTimeout) <= duration(self.interval)",fieldPath=".scrapeTimeout",message="is longer than interval, which Prometheus refuses: lower it or raise interval"
type ServiceMonitorSpec struct {
	// Enabled creates the ServiceMonitor, and the PrometheusRule beside it where there is one. The default stands at the field that holds this block.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Interval between two scrapes, with units y, w, d, h, m, s or ms, such as 15s. Default: that of
	// Prometheus.
	// +optional
	Interval PrometheusDuration `json:"interval,omitempty"`
	// ScrapeTimeout of one scrape, with a unit; Prometheus wants it to be no longer than the interval.
	// Default: that of Prometheus.
	// +optional
	ScrapeTimeout PrometheusDuration `json:"scrapeTimeout,omitempty"`
	// HonorLabels keeps the labels of the metrics where they collide with those of the target. Default
	// false: Prometheus renames those of the metrics to exported_NAME, such as exported_pod.
	// +optional
	HonorLabels *bool `json:"honorLabels,omitempty"`
	// AdditionalLabels are added to the ServiceMonitor, and to the PrometheusRule beside it where there is
	// one, for a Prometheus that selects by label, often by release.
	// +optional
	AdditionalLabels Labels `json:"additionalLabels,omitempty"`
	// Relabelings rewrite the labels of the targets before they are scraped. Default none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Relabelings []RelabelConfig `json:"relabelings,omitempty"`
}

// PrometheusDuration is a time as Prometheus writes it, or empty.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$')",message="must be a time of Prometheus, such as 30s or 1m30s"
type PrometheusDuration = string

// RelabelConfig is one step of rewriting labels. It has the keys of RelabelConfig of Prometheus
// Operator, whose own type would bring a default into the schema and no bounds.
//
// +kubebuilder:validation:XValidation:rule="(has(self.targetLabel) && self.targetLabel != \"\") || (has(self.action) && !(self.action.lowerAscii() in [\"\", 'replace', 'hashmod', 'lowercase', 'uppercase', 'keepequal', 'dropequal']))",message="this action writes a label: name it in targetLabel"
// +kubebuilder:validation:XValidation:rule="!has(self.action) || self.action.lowerAscii() != 'hashmod' || (has(self.modulus) && self.modulus > 0)",message="the action hashmod needs a modulus above 0"
type RelabelConfig struct {
	// SourceLabels are the labels whose values are joined by the separator and matched by regex.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	SourceLabels []string `json:"sourceLabels,omitempty"`
	// Separator between the joined values. Default ;.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Separator *string `json:"separator,omitempty"`
	// TargetLabel is the label that gets the result. The actions replace, hashmod, lowercase, uppercase,
	// keepequal and dropequal need it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	TargetLabel string `json:"targetLabel,omitempty"`
	// Regex that the joined values are matched by. Default (.*).
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="''.matches(self) in [true, false]",message="must be a regular expression of RE2"
	Regex string `json:"regex,omitempty"`
	// Modulus that the hash of the joined values is taken by, for the action hashmod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Modulus int64 `json:"modulus,omitempty"`
	// Replacement of the action replace, in which $1 is the first group of regex. Default $1.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Replacement *string `json:"replacement,omitempty"`
	// Action is what is done with a match. Default replace.
	// +optional
	// +kubebuilder:validation:Enum="";replace;Replace;keep;Keep;drop;Drop;hashmod;HashMod;labelmap;LabelMap;labeldrop;LabelDrop;labelkeep;LabelKeep;lowercase;Lowercase;uppercase;Uppercase;keepequal;KeepEqual;dropequal;DropEqual
	Action string `json:"action,omitempty"`
}
