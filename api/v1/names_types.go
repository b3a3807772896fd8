package v1

// ObjectName is the name of a ConfigMap, Secret or PriorityClass, or empty. It is an alias, so that its bounds are
// defined once while the fields stay strings.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$')",message="must be a lowercase RFC 1123 subdomain, such as my-config"
type ObjectName = string

// DataKey is a key of a ConfigMap, or empty.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)?$')",message="must be a ConfigMap key: letters, digits, '-', '_' and '.', without '..' at the beginning"
type DataKey = string

// PodSelector is a label selector for pods in the syntax of kubectl --selector, or empty.
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:XValidation:rule="self.matches('^[-a-zA-Z0-9_./=!<>, ()]*$')",message="must be a label selector, such as app=training,tier notin (test)"
type PodSelector = string

// TimeoutSeconds is a timeout in seconds. 0 means no timeout.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=2147483647
type TimeoutSeconds = int32

// EnvName is the name of an environment variable, with the characters that Kubernetes accepts.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^[ -<>-~]+$')",message="must be printable ASCII without '='"
type EnvName = string

// HostPath is an absolute path on the host, or empty.
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^(/.*[^/.].*)?$')",message="must be an absolute path, such as /opt/nvidia"
// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="must not contain '..': set the resolved path"
type HostPath = string
