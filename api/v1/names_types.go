package v1

// ObjectName is the name of a ConfigMap or Secret, or empty. It is an alias, so that the bounds stand
// in one place while the fields stay strings.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
type ObjectName = string

// DataKey is a key of a ConfigMap, or empty.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]*$`
type DataKey = string

// PodSelector chooses pods by their labels, as kubectl --selector does, or is empty.
// +kubebuilder:validation:MaxLength=4096
type PodSelector = string

// TimeoutSeconds is a time in seconds, of which 0 is no limit and a week the most.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=604800
type TimeoutSeconds = int32

// HostPath is an absolute path on the host, or empty.
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^(/[^.].*)?$`
// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="must not contain '..'"
type HostPath = string
