package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// NodePoolSpec gives some GPU nodes another driver, toolkit or GPU configuration. Absent fields are as in the rest of
// the spec.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) && size(self.nodeSelector) > 0",message="nodeSelector is empty and selects no node: add labels of its nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.devicePlugin) || !has(self.devicePlugin.config) || self.devicePlugin.config.?name.orValue(\"\") == \"\"",fieldPath=".sharing",message="must not be set together with devicePlugin.config.name: remove one of them"
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
	// Sharing of the GPUs of these nodes; it replaces spec.sharing. An empty block shares nothing.
	//
	// It excludes devicePlugin.config.name of the node pool.
	// +optional
	Sharing *SharingSpec `json:"sharing,omitempty"`
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

// NodePoolDriverSpec overrides spec.driver field by field, and spec.gds and spec.gdrcopy. A list that is not empty, a
// probe, a full image reference and the object with the licence replace those of the spec as a whole; labels and
// annotations are added to it.
type NodePoolDriverSpec struct {
	// UsePrecompiled uses an image with kernel modules for the kernel of each node. Default that of spec.driver.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// KernelModuleType is auto, open or proprietary. Default that of spec.driver.
	// +optional
	KernelModuleType KernelModuleType `json:"kernelModuleType,omitempty"`
	// StartupProbe of the driver container.
	// +optional
	StartupProbe *ProbeSpec `json:"startupProbe,omitempty"`
	// LivenessProbe of the driver container.
	// +optional
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`
	// ReadinessProbe of the driver container.
	// +optional
	ReadinessProbe *ProbeSpec `json:"readinessProbe,omitempty"`
	// RDMA configures GPUDirect RDMA.
	// +optional
	RDMA *RDMASpec `json:"rdma,omitempty"`
	// GDS overrides spec.gds.
	// +optional
	GDS *NodePoolModuleSpec `json:"gds,omitempty"`
	// GDRCopy overrides spec.gdrcopy.
	// +optional
	GDRCopy *NodePoolModuleSpec `json:"gdrcopy,omitempty"`
	// A full reference in image replaces repository, image and version of spec.driver together.
	ImageSpec `json:",inline"`
	// Resources of each container.
	// +optional
	Resources *ResourceRequirements `json:"resources,omitempty"`
	// Args replaces the arguments of the driver container.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Env replaces driver.env.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
	// HostNetwork runs the pods in the host network.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`
	// Tolerations replaces driver.tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Labels adds to or overrides driver.labels.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations adds to or overrides driver.annotations.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
	// PriorityClassName of the pods.
	// +optional
	PriorityClassName ObjectName `json:"priorityClassName,omitempty"`
	// PodSecurityContext replaces daemonsets.podSecurityContext.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`
	// UpgradePolicy of these nodes. Default that of spec.driver.
	// +optional
	UpgradePolicy *NodePoolUpgradePolicySpec `json:"upgradePolicy,omitempty"`
	// Manager configures the init container that unloads an old driver.
	// +optional
	Manager *DriverManagerSpec `json:"manager,omitempty"`
	// RepoConfig names package repositories.
	// +optional
	RepoConfig *DriverRepoConfigSpec `json:"repoConfig,omitempty"`
	// CertConfig names certificates.
	// +optional
	CertConfig *DriverCertConfigSpec `json:"certConfig,omitempty"`
	// LicensingConfig names the license of a vGPU guest driver.
	// +optional
	LicensingConfig *DriverLicensingConfigSpec `json:"licensingConfig,omitempty"`
	// VirtualTopology configures nvidia-topologyd.
	// +optional
	VirtualTopology *VirtualTopologyConfigSpec `json:"virtualTopology,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules. Default that of spec.driver.
	// +optional
	KernelModuleConfig *KernelModuleConfigSpec `json:"kernelModuleConfig,omitempty"`
	// SecretEnv is a Secret with environment variables for the driver container.
	// +optional
	SecretEnv ObjectName `json:"secretEnv,omitempty"`
}

// NodePoolModuleSpec overrides spec.gds or spec.gdrcopy, field by field.
type NodePoolModuleSpec struct {
	// Enabled runs the sidecar of the driver. It excludes usePrecompiled.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// A full reference in image replaces repository, image and version of the spec together.
	ImageSpec `json:",inline"`
	// Args replaces the arguments of the program.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131072
	Args []string `json:"args,omitempty"`
	// Env replaces that of the spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`
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
	// Default is the MIG layout of nodes for which no user sets nvidia.com/mig.config. Empty sets no label. Default that
	// of spec.migManager.config.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="must be a MIG layout name, such as all-1g.10gb: letters, digits, '-', '_' and '.'"
	Default *string `json:"default,omitempty"`
}
