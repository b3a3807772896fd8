package v1

// GDRCopySpec configures GDRCopy, by which the CPU copies to and from the memory of the GPUs.
type GDRCopySpec struct {
	// Enabled runs gdrdrv as a sidecar of the driver, and has the device plugin hand its device to
	// containers. It excludes driver.usePrecompiled. Default false.
	// +optional
	Enabled   *bool `json:"enabled,omitempty"`
	ImageSpec `json:",inline"`
	// Args replaces the arguments of the program that loads gdrdrv. Default install. It has no effect with
	// the driver toolkit of OpenShift, nor with NVIDIA's operator.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	Args []string `json:"args,omitempty"`
	// Env adds to the environment of gdrdrv; a name that the operator sets itself is overridden.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
}
