package v1

// DevicePluginSpec configures the device plugin. Its image is also that of the daemon of the
// Multi-Process Service (MPS) and of config-manager.
type DevicePluginSpec struct {
	// Enabled installs the device plugin. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config gives nodes configurations of their own, for time-slicing, MPS and so on. GPU Feature
	// Discovery and the MPS daemon read the same.
	// +optional
	Config *DevicePluginConfigSpec `json:"config,omitempty"`
	// MPS configures where the Multi-Process Service keeps its files.
	// +optional
	MPS *MPSSpec `json:"mps,omitempty"`
}

// DevicePluginConfigSpec names the configurations of the device plugin.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || self.default == \"\" || (has(self.name) && self.name != \"\")",fieldPath=".default",message="is a key of the ConfigMap that name is to name: set name, or remove default"
type DevicePluginConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace, of which each key is a configuration.
	// A node chooses one by the label nvidia.com/device-plugin.config, which config-manager watches.
	// Default none: flags and environment alone.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the key for nodes without that label. Default none: they have an empty configuration.
	// +optional
	Default DataKey `json:"default,omitempty"`
}

// MPSSpec configures the Multi-Process Service.
type MPSSpec struct {
	// Root is the directory on the host for the pipes, logs and shared memory of the MPS daemon, which
	// the device plugin mounts into containers. Default /run/nvidia/mps.
	// +optional
	Root HostPath `json:"root,omitempty"`
}
