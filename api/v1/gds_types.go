package v1

// GDSSpec configures GPUDirect Storage, by which disks reach the memory of the GPUs. Versions of
// nvidia-fs from 2.17.5 on need the open kernel modules.
type GDSSpec struct {
	// Enabled runs nvidia-fs as a sidecar of the driver, and has the device plugin hand its devices to
	// containers. It excludes driver.usePrecompiled. Default false.
	// +optional
	Enabled   *bool `json:"enabled,omitempty"`
	ImageSpec `json:",inline"`
	// Args replaces the arguments of the program that loads nvidia-fs. Default install. It has no effect with
	// the driver toolkit of OpenShift, nor with NVIDIA's operator.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	Args []string `json:"args,omitempty"`
	// Env adds to the environment of nvidia-fs; a name that the operator sets itself is overridden.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
}
