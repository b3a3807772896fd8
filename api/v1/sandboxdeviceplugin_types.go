package v1

// SandboxDevicePluginSpec configures the device plugin for KubeVirt, which advertises GPUs and vGPU devices to virtual
// machines. It has no effect without sandboxWorkloads.enabled.
type SandboxDevicePluginSpec struct {
	// Enabled installs the plugin on nodes for virtual machines in the mode kubevirt. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
}

// KataSandboxDevicePluginSpec configures the device plugin for Kata Containers, which advertises GPUs to containers in
// virtual machines. It has no effect without sandboxWorkloads.enabled.
type KataSandboxDevicePluginSpec struct {
	// Enabled installs the plugin on nodes for vm-passthrough in the mode kata. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
}
