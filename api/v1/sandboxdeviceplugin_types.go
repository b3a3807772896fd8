package v1

// SandboxDevicePluginSpec configures the device plugin of KubeVirt, which advertises GPUs and vGPU devices
// for virtual machines. It has no effect without sandboxWorkloads.enabled.
type SandboxDevicePluginSpec struct {
	// Enabled installs the plugin on nodes for virtual machines, with the mode kubevirt. Default false. Not
	// supported yet.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
}

// KataSandboxDevicePluginSpec configures the device plugin of Kata Containers, which advertises GPUs for
// containers in virtual machines. It has no effect without sandboxWorkloads.enabled.
type KataSandboxDevicePluginSpec struct {
	// Enabled installs the plugin on nodes for vm-passthrough, with the mode kata. Default false. Not
	// supported yet.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
}
