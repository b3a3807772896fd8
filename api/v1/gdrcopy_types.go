package v1

// GDRCopySpec configures GDRCopy, which lets the CPU copy to and from GPU memory.
type GDRCopySpec struct {
	// Enabled runs gdrdrv in a sidecar of the driver. It excludes driver.usePrecompiled. Default false.
	//
	// The device plugin then passes its device to containers.
	// +optional
	Enabled   *bool `json:"enabled,omitempty"`
	ImageSpec `json:",inline"`
	// Args replaces the arguments of the program that loads gdrdrv. Default install.
	//
	// It has no effect with OpenShift's driver toolkit, nor in NVIDIA's operator.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Env adds or overrides variables of gdrdrv.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
}
