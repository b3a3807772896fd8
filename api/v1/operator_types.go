package v1

// OperatorSpec configures what the operator itself creates.
type OperatorSpec struct {
	// RuntimeClass is the name of the main RuntimeClass and of its handler. Default nvidia.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="must be the name of a RuntimeClass and a handler: small letters, digits and '-'"
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// RefreshHelpers lets pods be replaced only to get the helper image of the running operator.
	// Default false: a new operator release by itself restarts no operand.
	// +optional
	RefreshHelpers *bool `json:"refreshHelpers,omitempty"`
	// Metrics configures how Prometheus finds the operator's own metrics.
	// +optional
	Metrics *OperatorMetricsSpec `json:"metrics,omitempty"`
	// UseOCPDriverToolkit builds the driver with the Driver Toolkit image of OpenShift. Default true on
	// Red Hat Enterprise Linux CoreOS; no effect elsewhere.
	// +optional
	UseOCPDriverToolkit *bool `json:"use_ocp_driver_toolkit,omitempty"`
	// DefaultRuntime is deprecated and has no effect: the container runtime of each node is read from
	// its Node object.
	// +optional
	// +kubebuilder:validation:Enum="";docker;crio;containerd
	DefaultRuntime string `json:"defaultRuntime,omitempty"`
	// InitContainer is deprecated and has no effect: no init container needs a CUDA image.
	// +optional
	InitContainer *ImageSpec `json:"initContainer,omitempty"`
	// Labels is deprecated and has no effect; daemonsets.labels are for the operands.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations is deprecated and has no effect; daemonsets.annotations are for the operands.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
}

// OperatorMetricsSpec configures how Prometheus finds the operator's own metrics.
type OperatorMetricsSpec struct {
	// ServiceMonitor of the operator. Enabled by default, as NVIDIA's operator always creates it; false
	// leaves it out.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}
