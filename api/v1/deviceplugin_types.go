package v1

// DevicePluginSpec configures the device plugin. The daemon of the Multi-Process Service (MPS) uses its image, too.
type DevicePluginSpec struct {
	// Enabled installs the device plugin. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config names configurations for nodes, such as time-slicing or MPS.
	//
	// GPU Feature Discovery and the MPS daemon use them, too.
	// +optional
	Config *DevicePluginConfigSpec `json:"config,omitempty"`
	// MPS configures the Multi-Process Service.
	// +optional
	MPS *MPSSpec `json:"mps,omitempty"`
}

// DevicePluginConfigSpec names the configurations of the device plugin.
type DevicePluginConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with a configuration in each key. Default none: flags and env only.
	//
	// The node label nvidia.com/device-plugin.config selects the key.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the key for nodes without the label nvidia.com/device-plugin.config. Default: the only key, or default,
	// or any.
	//
	// Without such a key these nodes get an empty configuration, which is reported. It has no effect without name.
	// +optional
	Default DataKey `json:"default,omitempty"`
}

// MPSSpec configures the Multi-Process Service.
type MPSSpec struct {
	// Root is the host directory for pipes, logs and shared memory of the MPS daemon. Default /run/nvidia/mps.
	//
	// The device plugin mounts it into containers.
	// +optional
	Root HostPath `json:"root,omitempty"`
}
