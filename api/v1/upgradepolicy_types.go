package v1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DriverUpgradePolicySpec configures how outdated drivers are replaced.
type DriverUpgradePolicySpec struct {
	// AutoUpgrade replaces outdated drivers node by node. Not supported yet. Default false.
	//
	// An outdated driver is replaced once its pod is deleted.
	// +optional
	AutoUpgrade *bool `json:"autoUpgrade,omitempty"`
	// MaxParallelUpgrades is how many nodes are upgraded at a time; 0 means no limit. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MaxParallelUpgrades *int32 `json:"maxParallelUpgrades,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable when an upgrade starts: a number or a percentage. Default 25%.
	//
	// A node is unavailable while it is cordoned or not ready. A percentage is of the nodes with a driver, rounded up. 0
	// allows no upgrade, which is reported if autoUpgrade is true.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9]+%?$')",message="must be a number or a percentage, such as 25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// WaitForCompletion waits for pods on a node before its upgrade starts.
	// +optional
	WaitForCompletion *WaitForCompletionSpec `json:"waitForCompletion,omitempty"`
	// PodDeletion deletes the pods that use GPUs before the driver is replaced.
	// +optional
	PodDeletion *PodDeletionSpec `json:"podDeletion,omitempty"`
	// Drain drains the whole node before the driver is replaced.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// WaitForCompletionSpec selects the pods to wait for.
type WaitForCompletionSpec struct {
	// PodSelector is a label selector for the pods to wait for, in all namespaces. Empty (default) waits for none.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is the maximum wait in seconds; 0 (default) means no limit.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
}

// PodDeletionSpec configures the deletion of pods that use GPUs.
type PodDeletionSpec struct {
	// Force also deletes pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// TimeoutSeconds is how long the pods of a node may take to end, in seconds; 0 means no limit. Default 300.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir also deletes pods with emptyDir volumes, whose data is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}

// DrainSpec configures the draining of nodes.
type DrainSpec struct {
	// Enable drains a node if the deletion of its GPU pods fails. Default false.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// Force also deletes pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// PodSelector is a label selector that limits the drain to matching pods. Empty (default) drains all pods.
	//
	// Pods with the label nvidia.com/gpu-driver-upgrade-drain.skip=true are never deleted.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is how long the drain of a node may take, in seconds; 0 means no limit. Default 300.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir also deletes pods with emptyDir volumes, whose data is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}
