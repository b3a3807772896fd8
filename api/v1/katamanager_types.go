package v1

// KataManagerSpec is deprecated and has no effect: use kata-deploy of Kata Containers.
type KataManagerSpec struct {
	// Enabled is deprecated and has no effect: use kata-deploy of Kata Containers.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	// Config is deprecated and has no effect: use kata-deploy of Kata Containers.
	// +optional
	Config *KataManagerConfigSpec `json:"config,omitempty"`
}

// KataManagerConfigSpec is deprecated and has no effect.
type KataManagerConfigSpec struct {
	// ArtifactsDir is deprecated and has no effect.
	// +optional
	ArtifactsDir HostPath `json:"artifactsDir,omitempty"`
	// RuntimeClasses is deprecated and has no effect.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	RuntimeClasses []KataRuntimeClassSpec `json:"runtimeClasses,omitempty"`
}

// KataRuntimeClassSpec is deprecated and has no effect.
type KataRuntimeClassSpec struct {
	// Name is deprecated and has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// NodeSelector is deprecated and has no effect.
	// +optional
	NodeSelector Labels `json:"nodeSelector,omitempty"`
	// Artifacts is deprecated and has no effect.
	// +optional
	Artifacts *KataArtifactsSpec `json:"artifacts,omitempty"`
}

// KataArtifactsSpec is deprecated and has no effect.
type KataArtifactsSpec struct {
	// URL is deprecated and has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url,omitempty"`
	// PullSecret is deprecated and has no effect.
	// +optional
	PullSecret ObjectName `json:"pullSecret,omitempty"`
}
