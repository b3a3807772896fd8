package v1

// OperatorSpec configures objects that the operator creates for itself.
type OperatorSpec struct {
	// RuntimeClass is the name of the main RuntimeClass and of its handler. Default nvidia.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="must be a RuntimeClass and handler name: lowercase letters and digits, with '-' between them"
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// RefreshHelpers allows pods to be replaced only to update the helper image. Default false.
	//
	// If false, an upgrade of the operator restarts no operand on its own.
	// +optional
	RefreshHelpers *bool `json:"refreshHelpers,omitempty"`
	// KeepWithoutNodes installs DaemonSets also while the cluster has no GPU node. Default false.
	//
	// A cluster autoscaler then knows what they request of the first node.
	// +optional
	KeepWithoutNodes *bool `json:"keepWithoutNodes,omitempty"`
	// Metrics configures the monitoring of the operator itself.
	// +optional
	Metrics *OperatorMetricsSpec `json:"metrics,omitempty"`
	// UseOCPDriverToolkit builds the driver with OpenShift's Driver Toolkit image on Red Hat CoreOS. Default true.
	//
	// It has no effect on other operating systems.
	// +optional
	UseOCPDriverToolkit *bool `json:"use_ocp_driver_toolkit,omitempty"`
	// DefaultRuntime is deprecated and has no effect: the runtime of each node is read from its Node.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DefaultRuntime string `json:"defaultRuntime,omitempty"`
	// InitContainer is deprecated and has no effect: no init container needs a CUDA image.
	// +optional
	InitContainer *ImageSpec `json:"initContainer,omitempty"`
	// Labels is deprecated and has no effect: use daemonsets.labels for the operands.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations is deprecated and has no effect: use daemonsets.annotations for the operands.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
}

// OperatorMetricsSpec configures the monitoring of the operator itself.
type OperatorMetricsSpec struct {
	// ServiceMonitor of the operator. Default enabled, as in NVIDIA's operator.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}
