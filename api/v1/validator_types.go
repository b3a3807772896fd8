package v1

// ValidatorSpec configures the validator. Its image is that of the operator, which contains gpu-node.
type ValidatorSpec struct {
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Driver configures the check of the driver.
	// +optional
	Driver *ValidatorComponentSpec `json:"driver,omitempty"`
	// Toolkit configures the check of the container toolkit.
	// +optional
	Toolkit *ValidatorComponentSpec `json:"toolkit,omitempty"`
	// CUDA configures the check that runs a CUDA kernel on the GPUs.
	// +optional
	CUDA *ValidatorComponentSpec `json:"cuda,omitempty"`
	// Plugin configures the check of the device plugin.
	// +optional
	Plugin *ValidatorComponentSpec `json:"plugin,omitempty"`
	// VFIOPCI configures the check that GPUs are bound to vfio-pci.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VFIOPCI *ValidatorComponentSpec `json:"vfioPCI,omitempty"`
	// VGPUManager configures the check of the vGPU manager.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VGPUManager *ValidatorComponentSpec `json:"vgpuManager,omitempty"`
	// VGPUDevices configures the check of the vGPU devices.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VGPUDevices *ValidatorComponentSpec `json:"vgpuDevices,omitempty"`
}

// ValidatorComponentSpec configures one check of the validator.
type ValidatorComponentSpec struct {
	// Env adds or overrides variables of the check.
	//
	// FAIL_AFTER is how long its attempts may fail before the container ends and the reason is shown, such as 30s. The
	// default is 1m, and 0s means never. The time during which another operand is not ready does not count.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
}
