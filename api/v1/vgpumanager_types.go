package v1

// VGPUManagerSpec configures the vGPU manager, the driver of hosts whose virtual machines share GPUs. It has no effect
// without sandboxWorkloads.enabled.
type VGPUManagerSpec struct {
	// Enabled installs the vGPU manager on nodes for vm-vgpu. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// DriverManager configures the init container that unloads an old driver.
	// +optional
	DriverManager *DriverManagerSpec `json:"driverManager,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
}

// VGPUDeviceManagerSpec configures the vGPU device manager, which creates vGPU devices by the node label
// nvidia.com/vgpu.config. It has no effect without sandboxWorkloads.enabled.
type VGPUDeviceManagerSpec struct {
	// Enabled installs the vGPU device manager on nodes for vm-vgpu. Not supported yet. Default false.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// Config selects the vGPU configurations.
	// +optional
	Config *VGPUDevicesConfigSpec `json:"config,omitempty"`
}

// VGPUDevicesConfigSpec selects the vGPU configurations of the vGPU device manager.
type VGPUDevicesConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with the key config.yaml. Default default-vgpu-devices-config.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the vGPU configuration of nodes without the label nvidia.com/vgpu.config. Default "default".
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Default string `json:"default,omitempty"`
}
