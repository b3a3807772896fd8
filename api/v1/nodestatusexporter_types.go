package v1

// NodeStatusExporterSpec configures the node status exporter. Its image is that of the operator, which
// holds gpu-node; imagePullPolicy is that of the validator by default.
type NodeStatusExporterSpec struct {
	// Enabled installs the exporter, which serves on port 8000 what the validator found on each node.
	// Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// ServiceMonitor of the exporter. Enabled by default, as NVIDIA's operator always creates it; false
	// leaves it out. NVIDIA's operator does not have this field.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}
