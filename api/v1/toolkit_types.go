package v1

// ToolkitSpec configures the container toolkit.
type ToolkitSpec struct {
	// Enabled installs the container toolkit. If false, the hosts must provide it. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// InstallDir is the host directory for the toolkit's binaries. Default /usr/local/nvidia.
	// +optional
	InstallDir HostPath `json:"installDir,omitempty"`
}
