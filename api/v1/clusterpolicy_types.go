package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPolicy declares the NVIDIA software stack of a cluster's GPU nodes. One is active, and others are
// ignored: the one that has been active before, with the finalizer of the operator, or else the oldest one that the
// operator can decode.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterpolicies,scope=Cluster,shortName=cp
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.nodeSummary.readyOfTotal`
// +kubebuilder:printcolumn:name="Upgrading",type=integer,JSONPath=`.status.nodeSummary.upgrading`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state. Every block is optional.
	// +optional
	Spec ClusterPolicySpec `json:"spec,omitempty"`
	// Status is the observed state.
	//
	// By its default, readers such as kstatus and kubectl wait see that the operator has not seen the object yet.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ClusterPolicyStatus `json:"status,omitempty"`
}

// ClusterPolicyList is a list of ClusterPolicy.
//
// +kubebuilder:object:root=true
type ClusterPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPolicy `json:"items"`
}

// ClusterPolicySpec has one block for each operand, and some that apply to all of them. A block that is absent, empty
// or null means the defaults.
//
// The GPUDirect Storage and GDRCopy sidecars build their kernel modules from the driver's sources, which a precompiled
// image does not contain. An existing policy that already violates such a rule can still be changed elsewhere.
//
// +kubebuilder:validation:XValidation:rule="!(self.?driver.?usePrecompiled.orValue(false) && self.?driver.?enabled.orValue(true) && self.?gds.?enabled.orValue(false)) || oldSelf.optMap(o, o.?driver.?usePrecompiled.orValue(false) && o.?driver.?enabled.orValue(true) && o.?gds.?enabled.orValue(false)).orValue(false)",optionalOldSelf=true,fieldPath=".driver.usePrecompiled",message="must not be set together with gds.enabled: remove one of them"
// +kubebuilder:validation:XValidation:rule="!(self.?driver.?usePrecompiled.orValue(false) && self.?driver.?enabled.orValue(true) && self.?gdrcopy.?enabled.orValue(false)) || oldSelf.optMap(o, o.?driver.?usePrecompiled.orValue(false) && o.?driver.?enabled.orValue(true) && o.?gdrcopy.?enabled.orValue(false)).orValue(false)",optionalOldSelf=true,fieldPath=".driver.usePrecompiled",message="must not be set together with gdrcopy.enabled: remove one of them"
// +kubebuilder:validation:XValidation:rule="!(self.?cdi.?nriPluginEnabled.orValue(false) && !self.?toolkit.?enabled.orValue(true)) || oldSelf.optMap(o, o.?cdi.?nriPluginEnabled.orValue(false) && !o.?toolkit.?enabled.orValue(true)).orValue(false)",optionalOldSelf=true,fieldPath=".cdi.nriPluginEnabled",message="needs the toolkit: remove toolkit.enabled=false or cdi.nriPluginEnabled"
// +kubebuilder:validation:XValidation:rule="!(self.?sandboxWorkloads.?enabled.orValue(false) && self.?vgpuManager.?enabled.orValue(false) && (!has(self.vgpuManager.image) || !self.vgpuManager.image.contains('/')) && (self.?vgpuManager.?repository.orValue(\"\") == \"\" || self.?vgpuManager.?image.orValue(\"\") == \"\" || self.?vgpuManager.?version.orValue(\"\") == \"\")) || oldSelf.optMap(o, o.?sandboxWorkloads.?enabled.orValue(false) && o.?vgpuManager.?enabled.orValue(false)).orValue(false)",optionalOldSelf=true,fieldPath=".vgpuManager",message="there is no public vGPU manager image: set repository, image and version of the image that you built"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePools) && self.?driver.?enabled.orValue(true) && self.nodePools.exists(p, p.?driver.?usePrecompiled.orValue(false) && (p.?driver.?gds.?enabled.orValue(self.?gds.?enabled.orValue(false)) || p.?driver.?gdrcopy.?enabled.orValue(self.?gdrcopy.?enabled.orValue(false)))))",fieldPath=".nodePools",message="driver.usePrecompiled of a node pool must not be set together with gds.enabled or gdrcopy.enabled: remove it, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePools) || self.nodePools.all(p, p.?devicePlugin.?config.?default.orValue(\"\") == \"\" || p.?devicePlugin.?config.?name.orValue(\"\") != \"\" || self.?devicePlugin.?config.?name.orValue(\"\") != \"\")",fieldPath=".nodePools",message="devicePlugin.config.default of a pool is a key of a ConfigMap: set devicePlugin.config.name in the node pool or in the spec, or remove default"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || self.?devicePlugin.?config.?name.orValue(\"\") == \"\"",fieldPath=".sharing",message="must not be set together with devicePlugin.config.name: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.mps) || self.?mig.?strategy.orValue(\"\") != \"mixed\"",fieldPath=".sharing.mps",message="MPS cannot share GPUs with mig.strategy mixed: use timeSlicing"
type ClusterPolicySpec struct {
	// Operator configures objects that the operator creates for itself.
	// +optional
	Operator *OperatorSpec `json:"operator,omitempty"`
	// Paused makes the operator write nothing but status and Events. Default false.
	//
	// It then changes no object, no node label and no node condition. Deleting the policy still removes the stack.
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// Global configures every container of the stack.
	// +optional
	Global *GlobalSpec `json:"global,omitempty"`
	// NodeDiscovery configures how GPU nodes are detected.
	// +optional
	NodeDiscovery *NodeDiscoverySpec `json:"nodeDiscovery,omitempty"`
	// Deadlines is how long a node may take for each stage before it counts as failed.
	// +optional
	Deadlines *DeadlinesSpec `json:"deadlines,omitempty"`
	// NodeStartup keeps pods off GPU nodes until their GPUs can be used.
	// +optional
	NodeStartup *NodeStartupSpec `json:"nodeStartup,omitempty"`
	// Health configures which losses of GPUs a node may have and still be ready.
	// +optional
	Health *HealthSpec `json:"health,omitempty"`
	// DaemonSets configures every DaemonSet of the stack.
	// +optional
	DaemonSets *DaemonSetsSpec `json:"daemonsets,omitempty"`
	// Removal configures how the stack is taken off the nodes once the policy is deleted.
	// +optional
	Removal *RemovalSpec `json:"removal,omitempty"`
	// NodePools give some GPU nodes another driver, toolkit or GPU configuration. A node belongs to the first
	// node pool that selects it.
	//
	// Nodes that no node pool selects follow the rest of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	NodePools []NodePoolSpec `json:"nodePools,omitempty"`
	// Driver configures the driver containers.
	// +optional
	Driver *DriverSpec `json:"driver,omitempty"`
	// Toolkit configures the container toolkit, which makes the container runtime inject GPUs.
	// +optional
	Toolkit *ToolkitSpec `json:"toolkit,omitempty"`
	// DevicePlugin configures the device plugin, which advertises GPUs to the kubelet.
	// +optional
	DevicePlugin *DevicePluginSpec `json:"devicePlugin,omitempty"`
	// Sharing makes several pods share a GPU. It excludes devicePlugin.config.
	// +optional
	Sharing *SharingSpec `json:"sharing,omitempty"`
	// GFD configures GPU Feature Discovery, which labels nodes with the properties of their GPUs.
	// +optional
	GFD *GFDSpec `json:"gfd,omitempty"`
	// DCGM configures the standalone engine of the Data Center GPU Manager.
	// +optional
	DCGM *DCGMSpec `json:"dcgm,omitempty"`
	// DCGMExporter configures the DCGM exporter, which serves GPU metrics.
	// +optional
	DCGMExporter *DCGMExporterSpec `json:"dcgmExporter,omitempty"`
	// NodeStatusExporter configures the node status exporter, which serves the validator's results as metrics.
	// +optional
	NodeStatusExporter *NodeStatusExporterSpec `json:"nodeStatusExporter,omitempty"`
	// Validator configures the validator, which checks on each node that the stack works.
	// +optional
	Validator *ValidatorSpec `json:"validator,omitempty"`
	// MIG configures how Multi-Instance GPU devices are advertised.
	// +optional
	MIG *MIGSpec `json:"mig,omitempty"`
	// MIGManager configures the MIG manager, which partitions GPUs.
	// +optional
	MIGManager *MIGManagerSpec `json:"migManager,omitempty"`
	// GDS configures GPUDirect Storage.
	// +optional
	GDS *GDSSpec `json:"gds,omitempty"`
	// GDRCopy configures GDRCopy.
	// +optional
	GDRCopy *GDRCopySpec `json:"gdrcopy,omitempty"`
	// CDI configures the Container Device Interface.
	// +optional
	CDI *CDISpec `json:"cdi,omitempty"`
	// HostPaths configures paths on the hosts.
	// +optional
	HostPaths *HostPathsSpec `json:"hostPaths,omitempty"`
	// PSA configures Pod Security Admission.
	// +optional
	PSA *PSASpec `json:"psa,omitempty"`
	// PSP is deprecated and has no effect: use psa.
	// +optional
	PSP *PSPSpec `json:"psp,omitempty"`
	// SandboxWorkloads configures nodes whose GPUs are for virtual machines.
	// +optional
	SandboxWorkloads *SandboxWorkloadsSpec `json:"sandboxWorkloads,omitempty"`
	// VFIOManager configures the VFIO manager, which binds GPUs to vfio-pci for virtual machines.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VFIOManager *VFIOManagerSpec `json:"vfioManager,omitempty"`
	// SandboxDevicePlugin configures the device plugin for KubeVirt.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	SandboxDevicePlugin *SandboxDevicePluginSpec `json:"sandboxDevicePlugin,omitempty"`
	// KataSandboxDevicePlugin configures the device plugin for Kata Containers.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	KataSandboxDevicePlugin *KataSandboxDevicePluginSpec `json:"kataSandboxDevicePlugin,omitempty"`
	// VGPUManager configures the vGPU manager, the driver of hosts whose virtual machines share GPUs.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VGPUManager *VGPUManagerSpec `json:"vgpuManager,omitempty"`
	// VGPUDeviceManager configures the vGPU device manager.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	VGPUDeviceManager *VGPUDeviceManagerSpec `json:"vgpuDeviceManager,omitempty"`
	// CCManager configures the confidential computing manager.
	//
	// It has no effect without sandboxWorkloads.enabled.
	// +optional
	CCManager *CCManagerSpec `json:"ccManager,omitempty"`
	// KataManager is deprecated and has no effect: use kata-deploy of Kata Containers.
	// +optional
	KataManager *KataManagerSpec `json:"kataManager,omitempty"`
}
