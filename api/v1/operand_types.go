package v1

// KernelModuleType is the flavour of the driver's kernel modules.
// +kubebuilder:validation:Enum=auto;open;proprietary
type KernelModuleType string

// The kernel module types of the driver container.
const (
	KernelModuleAuto        KernelModuleType = "auto"
	KernelModuleOpen        KernelModuleType = "open"
	KernelModuleProprietary KernelModuleType = "proprietary"
)

// DriverSpec configures the driver containers.
type DriverSpec struct {
	// Enabled installs the driver as a container. False means that the hosts bring their own.
	// Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// KernelModuleType is the flavour of the kernel modules. Default auto: the driver decides
	// by GPU and branch.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// StartupProbe overrides parts of the driver container's start-up probe, which by default
	// gives the driver 21 minutes to build and load.
	// +optional
	StartupProbe  *ProbeSpec `json:"startupProbe,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// Manager configures the init container that unloads an old driver.
	// +optional
	Manager *DriverManagerSpec `json:"manager,omitempty"`
}

// DriverManagerSpec configures k8s-driver-manager.
type DriverManagerSpec struct {
	ImageSpec `json:",inline"`
	// Env adds to the environment of the driver manager.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
}

// ToolkitSpec configures the container toolkit.
type ToolkitSpec struct {
	// Enabled installs the container toolkit. False means that the hosts bring their own.
	// Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// InstallDir is the directory on the host for the toolkit's binaries. Default
	// /usr/local/nvidia.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(/[^.].*)?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="must not contain '..'"
	InstallDir string `json:"installDir,omitempty"`
}

// DevicePluginSpec configures the device plugin.
type DevicePluginSpec struct {
	// Enabled installs the device plugin. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
}

// ValidatorSpec configures the validator. Its image is that of the operator, which holds gpu-node.
type ValidatorSpec struct {
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// Driver configures the check of the driver.
	// +optional
	Driver *ValidatorComponentSpec `json:"driver,omitempty"`
	// Toolkit configures the check of the container toolkit.
	// +optional
	Toolkit *ValidatorComponentSpec `json:"toolkit,omitempty"`
	// CUDA configures the check that a kernel runs on the GPUs.
	// +optional
	CUDA *ValidatorComponentSpec `json:"cuda,omitempty"`
	// Plugin configures the check of the device plugin.
	// +optional
	Plugin *ValidatorComponentSpec `json:"plugin,omitempty"`
}

// ValidatorComponentSpec configures one check of the validator.
type ValidatorComponentSpec struct {
	// Env adds to the environment of the check. FAIL_AFTER is how long its attempts may fail before the
	// container ends and the reason is shown, with a unit; 1m by default, 0s is never. What another
	// operand is still to bring does not count.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
}
