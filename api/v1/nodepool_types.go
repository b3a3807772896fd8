package v1

// NodePoolSpec gives some GPU nodes another driver, toolkit or GPU configuration. Absent fields are as in the rest of
// the spec.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) && size(self.nodeSelector) > 0",message="nodeSelector is empty and selects no node: add labels of its nodes"
type NodePoolSpec struct {
	// Name of the node pool. It is the suffix of the names of its DaemonSets.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be lowercase letters, digits and '-', start with a letter and not end with '-', such as a100"
	Name string `json:"name"`
	// NodeSelector selects the nodes. A node belongs to the first node pool that selects it.
	//
	// Use labels that a node has before it gets a driver: a node that moves to another node pool keeps its driver until
	// that is upgraded. A discovery label that goes missing does not move a node out of its node pool.
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

// NodePoolSelector are the labels of the nodes of a node pool.
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9][-a-z0-9.]{0,252}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="keys must be label keys, such as team or example.com/team"
type NodePoolSelector map[string]LabelValue

// NodePoolDriverSpec overrides spec.driver, field by field.
type NodePoolDriverSpec struct {
	// A full reference in image replaces repository, image and version of spec.driver together.
	ImageSpec `json:",inline"`
	// UsePrecompiled uses an image with kernel modules for the kernel of each node. Default that of spec.driver.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// KernelModuleType is auto, open or proprietary. Default that of spec.driver.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules. Default that of spec.driver.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
	// UpgradePolicy of these nodes. Default that of spec.driver.
	// +optional
	UpgradePolicy *NodePoolUpgradePolicySpec `json:"upgradePolicy,omitempty"`
}

// NodePoolToolkitSpec overrides spec.toolkit, field by field.
type NodePoolToolkitSpec struct {
	// A full reference in image replaces repository, image and version of spec.toolkit together.
	ImageSpec `json:",inline"`
}

// NodePoolDevicePluginSpec overrides spec.devicePlugin.
type NodePoolDevicePluginSpec struct {
	// Config names the configurations of these nodes. GPU Feature Discovery and the MPS daemon use them, too.
	// +optional
	Config *NodePoolPluginConfigSpec `json:"config,omitempty"`
}

// NodePoolPluginConfigSpec names the configurations of the device plugin in a node pool.
type NodePoolPluginConfigSpec struct {
	// Name of a ConfigMap with a configuration in each key. Default that of spec.devicePlugin.config.
	// +optional
	Name ObjectName `json:"name,omitempty"`
	// Default is the key for nodes without the label nvidia.com/device-plugin.config. Default that of
	// spec.devicePlugin.config, or none if name is set.
	// +optional
	Default DataKey `json:"default,omitempty"`
}

// NodePoolMIGManagerSpec overrides spec.migManager.
type NodePoolMIGManagerSpec struct {
	// Config selects the MIG layout.
	// +optional
	Config *NodePoolMIGConfigSpec `json:"config,omitempty"`
}

// NodePoolMIGConfigSpec selects the MIG layout of the nodes in a node pool.
type NodePoolMIGConfigSpec struct {
	// Default is the MIG layout of nodes without the label nvidia.com/mig.config, such as all-1g.10gb. Empty sets no
	// label. Default that of spec.migManager.config.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="must be a MIG layout name, such as all-1g.10gb: letters, digits, '-', '_' and '.'"
	Default *string `json:"default,omitempty"`
}
