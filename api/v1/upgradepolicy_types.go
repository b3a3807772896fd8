package v1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DriverUpgradePolicySpec configures how the drivers of nodes are replaced by newer ones.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoUpgrade) || !self.autoUpgrade || !has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable != 0 : !self.maxUnavailable.matches('^0+%?$'))",fieldPath=".maxUnavailable",message="must be above 0, or no node could ever be upgraded: raise it, or set autoUpgrade to false"
type DriverUpgradePolicySpec struct {
	// AutoUpgrade replaces outdated drivers node by node. Default false. Not supported yet: an outdated
	// driver is replaced once its pod is deleted.
	// +optional
	AutoUpgrade *bool `json:"autoUpgrade,omitempty"`
	// MaxParallelUpgrades is how many nodes are upgraded at once; 0 is no limit. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxParallelUpgrades *int32 `json:"maxParallelUpgrades,omitempty"`
	// MaxUnavailable is how many nodes may be cordoned or not ready while another upgrade begins: a number,
	// or a percentage of the nodes with a driver, rounded up. Default 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]+|([0-9]{1,2}|100)%)$')",message="must be a number, or a percentage of 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// WaitForCompletion waits for the work on a node before anything else happens to it.
	// +optional
	WaitForCompletion *WaitForCompletionSpec `json:"waitForCompletion,omitempty"`
	// PodDeletion deletes the pods that use GPUs before the driver is replaced.
	// +optional
	PodDeletion *PodDeletionSpec `json:"podDeletion,omitempty"`
	// Drain drains the whole node before the driver is replaced.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// WaitForCompletionSpec chooses the work that is waited for.
type WaitForCompletionSpec struct {
	// PodSelector chooses the pods, in all namespaces, as kubectl --selector does. Default empty: none is
	// waited for.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is the most seconds to wait; 0 is no limit. Default 0.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
}

// PodDeletionSpec configures the deletion of pods that use GPUs.
type PodDeletionSpec struct {
	// Force deletes also pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// TimeoutSeconds is the most seconds that the pods of a node may take to end; 0 is no limit. Default
	// 300.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir deletes also pods with an emptyDir volume, the data of which is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}

// DrainSpec configures the draining of nodes.
type DrainSpec struct {
	// Enable drains a node if the deletion of the pods that use GPUs fails. Default false.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// Force deletes also pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// PodSelector limits the drain to some pods, as kubectl --selector does. Pods with the label
	// nvidia.com/gpu-driver-upgrade-drain.skip=true always stay. Default empty: all pods.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is the most seconds that the drain of a node may take; 0 is no limit. Default 300.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir deletes also pods with an emptyDir volume, the data of which is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}
