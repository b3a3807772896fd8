package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// NVIDIADriver declares the driver of some GPU nodes. ClusterPolicy uses these objects instead of its own spec.driver
// if spec.driver.useNvidiaDriverCRD is true.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nvidiadrivers,scope=Cluster,shortName=nvd;nvdriver;nvdrivers
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NVIDIADriver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired driver. Every field is optional.
	// +optional
	Spec NVIDIADriverSpec `json:"spec,omitempty"`
	// Status is the observed state.
	//
	// By its default, readers such as kstatus and kubectl wait see that the operator has not seen the object yet.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status NVIDIADriverStatus `json:"status,omitempty"`
}

// NVIDIADriverList is a list of NVIDIADriver.
//
// +kubebuilder:object:root=true
type NVIDIADriverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NVIDIADriver `json:"items"`
}

// DriverType is the kind of driver.
// +kubebuilder:validation:Enum=gpu;vgpu;vgpu-host-manager
// +kubebuilder:validation:MaxLength=32
type DriverType string

// The driver types.
const (
	// DriverTypeGPU is the driver of physical GPUs.
	DriverTypeGPU DriverType = "gpu"
	// DriverTypeVGPU is the driver of virtual machines that have a vGPU.
	DriverTypeVGPU DriverType = "vgpu"
	// DriverTypeVGPUHostManager is the driver of hosts whose virtual machines share GPUs. Not supported yet.
	DriverTypeVGPUHostManager DriverType = "vgpu-host-manager"
)

// NVIDIADriverSpec is one driver and the nodes that get it. It is complete: absent fields have the defaults of
// NVIDIADriver, whatever spec.driver of the ClusterPolicy says.
//
// +kubebuilder:validation:XValidation:rule="!self.?default.orValue(false) || !has(self.nodeSelector) || size(self.nodeSelector) == 0",fieldPath=".nodeSelector",message="must not be set if default is true: remove one of them"
// +kubebuilder:validation:XValidation:rule="has(self.driverType) ? (has(oldSelf.driverType) ? self.driverType == oldSelf.driverType : self.driverType == 'gpu') : (!has(oldSelf.driverType) || oldSelf.driverType == 'gpu')",fieldPath=".driverType",message="is immutable: create another NVIDIADriver"
// +kubebuilder:validation:XValidation:rule="!has(self.usePrecompiled) || !has(oldSelf.usePrecompiled) || self.usePrecompiled == oldSelf.usePrecompiled",fieldPath=".usePrecompiled",message="is immutable: create another NVIDIADriver"
// +kubebuilder:validation:XValidation:rule="!(self.?usePrecompiled.orValue(false) && self.?gds.?enabled.orValue(false)) || oldSelf.optMap(o, o.?usePrecompiled.orValue(false) && o.?gds.?enabled.orValue(false)).orValue(false)",optionalOldSelf=true,fieldPath=".usePrecompiled",message="must not be set together with gds.enabled: remove one of them"
// +kubebuilder:validation:XValidation:rule="!(self.?usePrecompiled.orValue(false) && self.?gdrcopy.?enabled.orValue(false)) || oldSelf.optMap(o, o.?usePrecompiled.orValue(false) && o.?gdrcopy.?enabled.orValue(false)).orValue(false)",optionalOldSelf=true,fieldPath=".usePrecompiled",message="must not be set together with gdrcopy.enabled: remove one of them"
type NVIDIADriverSpec struct {
	// Default makes this the driver of all GPU nodes that no other NVIDIADriver selects. Default false.
	//
	// It must have no nodeSelector then, and only one object may be the default.
	// +optional
	Default bool `json:"default,omitempty"`
	// DriverType is gpu, vgpu or vgpu-host-manager, and immutable. Default gpu.
	//
	// The driver of a vgpu guest is an image that you build, with licensingConfig; its pods are those of gpu.
	// vgpu-host-manager is not supported yet.
	// +optional
	DriverType DriverType `json:"driverType,omitempty"`
	// UsePrecompiled uses an image with kernel modules for each kernel; version is then a driver branch, such as 595.
	// Immutable once set. Default false.
	//
	// It excludes gds and gdrcopy. repoConfig, certConfig and secretEnv have no effect then.
	// +optional
	UsePrecompiled *bool `json:"usePrecompiled,omitempty"`
	// UseOpenKernelModules is deprecated and has no effect: use kernelModuleType.
	// +optional
	UseOpenKernelModules *bool `json:"useOpenKernelModules,omitempty"`
	// KernelModuleType is auto, open or proprietary. Default auto: the driver decides by GPU and branch.
	// +optional
	KernelModuleType v1.KernelModuleType `json:"kernelModuleType,omitempty"`
	// StartupProbe overrides the start-up probe of the driver container. By default the driver has 21 minutes to build
	// and load.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a start-up probe"
	StartupProbe *v1.ProbeSpec `json:"startupProbe,omitempty"`
	// LivenessProbe adds a liveness probe to the driver container. Default none.
	//
	// When it fails, the kubelet restarts the container, and running pods lose their GPUs. NVIDIA's operator ignores it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.successThreshold) || self.successThreshold == 1",fieldPath=".successThreshold",message="must be 1 in a liveness probe"
	LivenessProbe *v1.ProbeSpec `json:"livenessProbe,omitempty"`
	// ReadinessProbe adds a readiness probe to the driver container. Default none: it is ready once it has started up.
	//
	// NVIDIA's operator ignores it.
	// +optional
	ReadinessProbe *v1.ProbeSpec `json:"readinessProbe,omitempty"`
	// RDMA configures GPUDirect RDMA, which lets network cards access GPU memory.
	// +optional
	RDMA *v1.RDMASpec `json:"rdma,omitempty"`
	// GDS configures GPUDirect Storage, which lets storage devices access GPU memory.
	// +optional
	GDS *v1.GDSSpec `json:"gds,omitempty"`
	// GDRCopy configures GDRCopy, which lets the CPU copy to and from GPU memory.
	// +optional
	GDRCopy *v1.GDRCopySpec `json:"gdrcopy,omitempty"`
	// An absent image is nvcr.io/nvidia/driver.
	v1.ImageSpec     `json:",inline"`
	v1.ContainerSpec `json:",inline"`
	// Manager configures the init container that unloads an old driver.
	// +optional
	Manager *v1.DriverManagerSpec `json:"manager,omitempty"`
	// RepoConfig names package repositories for the driver container, which installs kernel headers from them.
	// +optional
	RepoConfig *ConfigMapSpec `json:"repoConfig,omitempty"`
	// CertConfig names certificates that the driver container trusts.
	// +optional
	CertConfig *ConfigMapSpec `json:"certConfig,omitempty"`
	// LicensingConfig names the license of a vGPU guest driver.
	// +optional
	LicensingConfig *LicensingConfigSpec `json:"licensingConfig,omitempty"`
	// VirtualTopologyConfig configures nvidia-topologyd of a vGPU guest driver.
	// +optional
	VirtualTopologyConfig *ConfigMapSpec `json:"virtualTopologyConfig,omitempty"`
	// KernelModuleConfig names parameters of the kernel modules.
	// +optional
	KernelModuleConfig *ConfigMapSpec `json:"kernelModuleConfig,omitempty"`
	// SecretEnv is a Secret with environment variables for the driver container, such as UBUNTU_PRO_TOKEN. Default none.
	//
	// Each key is a variable. The sidecars nvidia-fs and gdrcopy get them, too. The Secret is in the operator's
	// namespace.
	// +optional
	SecretEnv v1.ObjectName `json:"secretEnv,omitempty"`
	// UpgradePolicy configures how outdated drivers are replaced. autoUpgrade is true by default here.
	// +optional
	UpgradePolicy *v1.DriverUpgradePolicySpec `json:"upgradePolicy,omitempty"`
	// NodeSelector selects the nodes. Empty (default) selects all GPU nodes.
	//
	// Two objects must not select the same node. The owner label nvidia.com/gpu-operator.driver.owner must not be used.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!('nvidia.com/gpu-operator.driver.owner' in self)",message="nvidia.com/gpu-operator.driver.owner is set by the operator: remove it"
	NodeSelector v1.NodePoolSelector `json:"nodeSelector,omitempty"`
	// NodeAffinity is not supported: use nodeSelector. NVIDIA's operator ignores it.
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// Tolerations adds to the toleration of nvidia.com/gpu.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:XValidation:rule="(has(self.key) && self.key != \"\") || (has(self.operator) && self.operator == 'Exists')",fieldPath=".operator",message="must be Exists if key is empty"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.value) || self.value == \"\" || !has(self.operator) || self.operator != 'Exists'",fieldPath=".value",message="must be empty if operator is Exists"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",fieldPath=".effect",message="must be NoExecute if tolerationSeconds is set"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Labels of the DaemonSets and pods.
	//
	// Labels that the operator sets itself cannot be changed.
	// +optional
	Labels v1.Labels `json:"labels,omitempty"`
	// Annotations of the DaemonSets and pods.
	// +optional
	Annotations v1.Annotations `json:"annotations,omitempty"`
	// PriorityClassName of the pods. Default system-node-critical.
	// +optional
	PriorityClassName v1.ObjectName `json:"priorityClassName,omitempty"`
	// PodSecurityContext of the pods.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`
}

// ConfigMapSpec names a ConfigMap.
type ConfigMapSpec struct {
	// Name of a ConfigMap in the operator's namespace, with one file in each key. Default none.
	// +optional
	Name v1.ObjectName `json:"name,omitempty"`
}

// LicensingConfigSpec names the license of a vGPU guest driver.
type LicensingConfigSpec struct {
	// SecretName is a Secret in the operator's namespace with the key gridd.conf, and client_configuration_token.tok if
	// nlsEnabled.
	//
	// It overrides name.
	// +optional
	SecretName v1.ObjectName `json:"secretName,omitempty"`
	// Name is deprecated: use secretName.
	//
	// It is a ConfigMap with the same keys, read if secretName is empty.
	// +optional
	Name v1.ObjectName `json:"name,omitempty"`
	// NLSEnabled also mounts the token of the NVIDIA License System. Default true.
	// +optional
	NLSEnabled *bool `json:"nlsEnabled,omitempty"`
}

// DriverState is the overall state of the object, as in NVIDIA's operator.
// +kubebuilder:validation:Enum=ignored;ready;notReady;disabled
type DriverState string

// The states of an NVIDIADriver.
const (
	// StateIgnored: the object is not used.
	StateIgnored DriverState = "ignored"
	// StateReady: its driver is ready on every node that it selects.
	StateReady DriverState = "ready"
	// StateNotReady: the conditions show what is missing.
	StateNotReady DriverState = "notReady"
	// StateDisabled: the active ClusterPolicy does not use NVIDIADriver objects.
	StateDisabled DriverState = "disabled"
)

// NVIDIADriverStatus is the observed state.
type NVIDIADriverStatus struct {
	// State is ready, notReady, disabled or ignored.
	// +optional
	State DriverState `json:"state,omitempty"`
	// Namespace of the operator and the driver.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on, -1 before the first.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Error, its inverse, and Stalled, where waiting cannot help.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
