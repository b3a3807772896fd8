package v1

// NodeStatusExporterSpec configures the node status exporter. Its image is that of the operator, which contains
// gpu-node. imagePullPolicy defaults to that of the validator.
type NodeStatusExporterSpec struct {
	// Enabled installs the exporter, which serves the validator's results on port 8000. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// ServiceMonitor of the exporter. Default enabled.
	//
	// NVIDIA's operator always creates it and does not have this field.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}
