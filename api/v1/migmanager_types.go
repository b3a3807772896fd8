package v1

// MIGManagerSpec configures the MIG manager, which partitions GPUs as the label nvidia.com/mig.config of
// each node says.
type MIGManagerSpec struct {
	// Enabled installs the MIG manager on nodes whose GPUs can be partitioned. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config chooses the layouts.
	// +optional
	Config *MIGManagerConfigSpec `json:"config,omitempty"`
	// GPUClientsConfig chooses what is stopped on the host while a layout changes.
	// +optional
	GPUClientsConfig *GPUClientsConfigSpec `json:"gpuClientsConfig,omitempty"`
}

// MIGManagerConfigSpec chooses the layouts of the MIG manager.
type MIGManagerConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace with the key config.yaml, in the format
	// of mig-parted. Default: what the MIG manager finds that the GPUs can do, and default-mig-parted-config
	// if it cannot.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is what nodes without the label nvidia.com/mig.config get as its value: the name of a layout
	// such as all-1g.10gb, or empty for no label. Default all-disabled where config is given; without config
	// no node gets one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="must be the name of a layout, such as all-1g.10gb: letters, digits, '-', '_' and '.'"
	Default *string `json:"default,omitempty"`
}

// GPUClientsConfigSpec chooses what is stopped while a layout changes.
type GPUClientsConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace with the key clients.yaml, a list of
	// systemd services that hold GPUs. It matters only if the driver is installed on the host. Default:
	// default-gpu-clients.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}
