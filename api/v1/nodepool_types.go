package v1

// NodePoolSpec gives some GPU nodes another driver, toolkit or use of their GPUs than all others have. What it
// leaves out is as in the rest of the spec.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) && size(self.nodeSelector) > 0",message="selects no node: name labels of its nodes in nodeSelector"
type NodePoolSpec struct {
	// Name of the pool; names of its DaemonSets end in it.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be small letters, digits and '-', with a letter first and no '-' at its end, such as a100"
	Name string `json:"name"`
	// NodeSelector are the labels that each node of the pool has. A node belongs to the first pool whose labels
	// it has. Take labels that a node has before it has a driver: one that is moved to another pool keeps its
	// driver until somebody moves that. A label of discovery that goes missing takes no node out of its pool.
	// +optional
	NodeSelector NodePoolSelector `json:"nodeSelector,omitempty"`
	// Driver of these nodes.
	// +optional
	Driver *NodePoolDriverSpec `json:"driver,omitempty"`
	// Toolkit of these nodes.
	// +optional
	Toolkit *NodePoolToolkitSpec `json:"toolkit,omitempty"`
	// DevicePlugin of these nodes.
	// +optional
	DevicePlugin *NodePoolDevicePluginSpec `json:"devicePlugin,omitempty"`
	// MIG configures how Multi-Instance GPU devices of these nodes are advertised.
	// +optional
	MIG *MIGSpec `json:"mig,omitempty"`
	// MIGManager on these nodes.
	// +optional
	MIGManager *NodePoolMIGManagerSpec `json:"migManager,omitempty"`
}

// NodePoolSelector are the labels of the nodes of a pool.
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9][-a-z0-9.]{0,252}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="each key must be a label's, such as team or example.com/team"
type NodePoolSelector map[string]LabelValue

// NodePoolDriverSpec is what a pool says otherwise than spec.driver, field by field.
type NodePoolDriverSpec struct {
	// A whole reference in image stands for repository, image and version of spec.driver together.
	ImageSpec `json:",inline"`
	// UsePrecompiled takes an image with kernel modules for the kernel of each node. Default that of
	// spec.driver.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// KernelModuleType is the flavour of the kernel modules. Default that of spec.driver.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules. Default those of spec.driver.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
}

// NodePoolToolkitSpec is what a pool says otherwise than spec.toolkit, field by field.
type NodePoolToolkitSpec struct {
	// A whole reference in image stands for repository, image and version of spec.toolkit together.
	ImageSpec `json:",inline"`
}

// NodePoolDevicePluginSpec is what a pool says otherwise than spec.devicePlugin.
type NodePoolDevicePluginSpec struct {
	// Config gives the nodes configurations of their own. GPU Feature Discovery and the MPS daemon read the same.
	// +optional
	Config *NodePoolPluginConfigSpec `json:"config,omitempty"`
}

// NodePoolPluginConfigSpec names the configurations of the device plugin in a pool.
type NodePoolPluginConfigSpec struct {
	// Name is the name of a ConfigMap in the operator's namespace, of which each key is a configuration.
	// Default that of spec.devicePlugin.config.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the key for nodes without the label nvidia.com/device-plugin.config. Default that of
	// spec.devicePlugin.config, and none where name is given.
	// +optional
	Default DataKey `json:"default,omitempty"`
}

// NodePoolMIGManagerSpec is what a pool says otherwise than spec.migManager.
type NodePoolMIGManagerSpec struct {
	// Config chooses the layouts.
	// +optional
	Config *NodePoolMIGConfigSpec `json:"config,omitempty"`
}

// NodePoolMIGConfigSpec chooses the layout of the GPUs in a pool.
type NodePoolMIGConfigSpec struct {
	// Default is what nodes of the pool without the label nvidia.com/mig.config get as its value: the name of
	// a layout such as all-1g.10gb, or empty for no label. Default that of spec.migManager.config.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="must be the name of a layout, such as all-1g.10gb: letters, digits, '-', '_' and '.'"
	Default *string `json:"default,omitempty"`
}
