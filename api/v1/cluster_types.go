package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DaemonSetsSpec configures every DaemonSet of the stack.
type DaemonSetsSpec struct {
	// Labels are added to the DaemonSets and their pods. The keys app and
	// app.kubernetes.io/part-of cannot be changed.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations are added to the DaemonSets and their pods.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
	// Tolerations replaces the default, a toleration of the taint nvidia.com/gpu:NoSchedule.
	//
	// Node discovery ignores this field: it tolerates every taint, unless nodeDiscovery.tolerations is set.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:XValidation:rule="(has(self.key) && self.key != \"\") || (has(self.operator) && self.operator == 'Exists')",fieldPath=".operator",message="must be Exists if key is empty"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.value) || self.value == \"\" || !has(self.operator) || self.operator != 'Exists'",fieldPath=".value",message="must be empty if operator is Exists"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",fieldPath=".effect",message="must be NoExecute if tolerationSeconds is set"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// NodeSelector selects the GPU nodes that get the stack. Default all.
	//
	// Node discovery ignores this field and looks at all nodes.
	// +optional
	NodeSelector Labels `json:"nodeSelector,omitempty"`
	// PriorityClassName of the pods. Default system-node-critical.
	// +optional
	PriorityClassName ObjectName `json:"priorityClassName,omitempty"`
	// UpdateStrategy of all DaemonSets except the driver's, which is always OnDelete. Default RollingUpdate.
	// +optional
	// +kubebuilder:validation:Enum="";RollingUpdate;OnDelete
	UpdateStrategy string `json:"updateStrategy,omitempty"`
	// RollingUpdate configures the strategy RollingUpdate.
	// +optional
	RollingUpdate *RollingUpdateSpec `json:"rollingUpdate,omitempty"`
	// PodSecurityContext of the pods.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`
}

// RollingUpdateSpec configures the strategy RollingUpdate.
type RollingUpdateSpec struct {
	// MaxUnavailable is how many pods may be unavailable at a time: a number, or a percentage from 1% to 100%. Default 1.
	//
	// Empty means the default. The default for node discovery, which runs on every node, is 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int || self.matches('^([0-9]{1,9}|([0-9]{1,2}|100)%)?$')",message="must be a number of at most 9 digits, or a percentage of 1% to 100%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : !self.matches('^0+%?$')",message="must be above 0, or no pod can be replaced"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// MIGStrategy is how MIG devices are advertised.
// +kubebuilder:validation:Enum=none;single;mixed
type MIGStrategy string

// The MIG strategies of the device plugin.
const (
	MIGStrategyNone   MIGStrategy = "none"
	MIGStrategySingle MIGStrategy = "single"
	MIGStrategyMixed  MIGStrategy = "mixed"
)

// MIGSpec configures how Multi-Instance GPU devices are advertised.
type MIGSpec struct {
	// Strategy is none, single or mixed. Default: the device plugin decides.
	//
	// none ignores MIG. single advertises MIG devices, which must be equal, as nvidia.com/gpu. mixed advertises each
	// profile as nvidia.com/mig-PROFILE.
	// +optional
	Strategy MIGStrategy `json:"strategy,omitempty"`
}

// CDISpec configures the Container Device Interface.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.nriPluginEnabled) && self.nriPluginEnabled && has(self.enabled) && !self.enabled)",message="nriPluginEnabled needs CDI: remove cdi.enabled=false or nriPluginEnabled"
type CDISpec struct {
	// Enabled injects GPUs through CDI instead of the legacy hook. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Default is deprecated and has no effect.
	// +optional
	Default *bool `json:"default,omitempty"`
	// NRIPluginEnabled injects GPUs through the Node Resource Interface instead of RuntimeClasses. It needs CDI and the
	// toolkit. Default false.
	// +optional
	NRIPluginEnabled *bool `json:"nriPluginEnabled,omitempty"`
}

// HostPathsSpec configures paths on the hosts.
type HostPathsSpec struct {
	// RootFS is the root of the host's file system, as the kubelet sees it. Default /.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/.*)?$')",message="must be an absolute path, such as /"
	// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="must not contain '..': set the resolved path"
	RootFS string `json:"rootFS,omitempty"`
	// DriverInstallDir is the path of the driver's root file system on the host. Default /run/nvidia/driver.
	// +optional
	DriverInstallDir HostPath `json:"driverInstallDir,omitempty"`
	// KubeletRootDir is the kubelet's --root-dir. Default /var/lib/kubelet.
	//
	// The DCGM exporter reads pod-resources below it to find the pod that uses each GPU. The directory of device plugins
	// stays /var/lib/kubelet/device-plugins, as in NVIDIA's operator.
	// +optional
	KubeletRootDir HostPath `json:"kubeletRootDir,omitempty"`
}
