package v1

// GDSSpec configures GPUDirect Storage, which lets storage devices access GPU memory. nvidia-fs 2.17.5 and later need
// the open kernel modules; driver.kernelModuleType proprietary is reported.
type GDSSpec struct {
	// Enabled runs nvidia-fs in a sidecar of the driver. It excludes driver.usePrecompiled. Default false.
	//
	// The device plugin then passes its devices to containers.
	// +optional
	Enabled   *bool `json:"enabled,omitempty"`
	ImageSpec `json:",inline"`
	// Args replaces the arguments of the program that loads nvidia-fs. Default install.
	//
	// It has no effect with OpenShift's driver toolkit, nor in NVIDIA's operator.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Env adds or overrides variables of nvidia-fs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
}
