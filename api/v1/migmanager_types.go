package v1

// MIGManagerSpec configures the MIG manager, which partitions GPUs by the node label nvidia.com/mig.config.
type MIGManagerSpec struct {
	// Enabled installs the MIG manager on nodes with MIG-capable GPUs. Default true.
	// +optional
	Enabled       *bool `json:"enabled,omitempty"`
	ImageSpec     `json:",inline"`
	ContainerSpec `json:",inline"`
	PlacementSpec `json:",inline"`
	// Config selects the MIG layouts.
	// +optional
	Config *MIGManagerConfigSpec `json:"config,omitempty"`
	// GPUClientsConfig selects the host services to stop while the MIG layout changes.
	// +optional
	GPUClientsConfig *GPUClientsConfigSpec `json:"gpuClientsConfig,omitempty"`
}

// MIGManagerConfigSpec selects the MIG layouts of the MIG manager.
type MIGManagerConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with the key config.yaml, in the format of mig-parted. Default:
	// generated.
	//
	// By default the MIG manager generates it from what the GPUs support, and uses default-mig-parted-config if that
	// fails.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the MIG layout of nodes for which no user sets the label nvidia.com/mig.config, such as all-1g.10gb.
	// Empty sets no label. Default all-disabled if config is set.
	//
	// The operator sets it as the value of that label, also if it has set another one before. It changes the layout of a
	// node when no pod uses its GPUs, see onBusy, and of as many nodes at a time as spec.driver.upgradePolicy allows
	// (maxParallelUpgrades, maxUnavailable). Without config, no node gets the label.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="must be a MIG layout name, such as all-1g.10gb: letters, digits, '-', '_' and '.'"
	Default *string `json:"default,omitempty"`
	// OnBusy is what to do if pods use the GPUs of a node whose layout the operator changes: hold, drain or now. Default
	// hold.
	//
	// hold waits until no pod uses them. drain cordons the node, evicts the pods as a driver upgrade does
	// (spec.driver.upgradePolicy: waitForCompletion, podDeletion, drain), and uncordons it after the change. now does not
	// wait: the change fails while a pod does. A label that a user sets goes to the MIG manager at once in any case.
	// +optional
	OnBusy MIGBusyAction `json:"onBusy,omitempty"`
}

// MIGBusyAction is what to do if pods use the GPUs whose MIG layout is to change.
// +kubebuilder:validation:Enum="";hold;drain;now
type MIGBusyAction string

// The values of MIGBusyAction.
const (
	MIGBusyHold  MIGBusyAction = "hold"
	MIGBusyDrain MIGBusyAction = "drain"
	MIGBusyNow   MIGBusyAction = "now"
)

// GPUClientsConfigSpec selects what is stopped while the MIG layout changes.
type GPUClientsConfigSpec struct {
	// Name of a ConfigMap in the operator's namespace with the key clients.yaml. Default default-gpu-clients.
	//
	// It lists systemd services that use GPUs. It matters only if the driver is installed on the host.
	// +optional
	Name ObjectName `json:"name,omitempty"`
}
