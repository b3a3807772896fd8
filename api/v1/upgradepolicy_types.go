package v1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DriverUpgradePolicySpec configures how outdated drivers are replaced.
type DriverUpgradePolicySpec struct {
	// AutoUpgrade replaces outdated drivers node by node. Default false.
	//
	// If false, a node is upgraded when it has the annotation nvidia.com/gpu-driver-upgrade-requested=true, or when its
	// driver pod is deleted. The label nvidia.com/gpu-driver-upgrade.skip=true excludes a node.
	// +optional
	AutoUpgrade *bool `json:"autoUpgrade,omitempty"`
	// Paused starts no upgrade. Those that run are completed. Default false.
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// MaxParallelUpgrades is how many nodes are upgraded at a time; 0 means no limit. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MaxParallelUpgrades *int32 `json:"maxParallelUpgrades,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable when an upgrade starts: a number or a percentage. Default 25%.
	//
	// A node is unavailable while it is cordoned or not ready. A percentage is of the nodes with a driver, rounded up. 0
	// allows no upgrade of a node that is available, which is reported if autoUpgrade is true.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]{1,9}|[0-9]+%)$')",message="must be a number of at most 9 digits, or a percentage such as 25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PullImages pulls the images of the new driver before a node is cordoned. Default true.
	//
	// An image that cannot be pulled then disturbs no pod.
	// +optional
	PullImages *bool `json:"pullImages,omitempty"`
	// Timeouts limit the steps of an upgrade that the other blocks do not limit.
	// +optional
	Timeouts *UpgradeTimeoutsSpec `json:"timeouts,omitempty"`
	// WaitForCompletion waits for pods on a cordoned node before pods are evicted.
	// +optional
	WaitForCompletion *WaitForCompletionSpec `json:"waitForCompletion,omitempty"`
	// PodDeletion evicts the pods that use GPUs before the driver is replaced. PodDisruptionBudgets are honoured.
	// +optional
	PodDeletion *PodDeletionSpec `json:"podDeletion,omitempty"`
	// Drain evicts the other pods of a node too, if the eviction of those that use GPUs takes too long.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// NodePoolUpgradePolicySpec overrides spec.driver.upgradePolicy for a node pool, field by field. The numbers then count
// the nodes of the node pool alone.
type NodePoolUpgradePolicySpec struct {
	// AutoUpgrade replaces outdated drivers node by node. Default that of spec.driver.upgradePolicy.
	// +optional
	AutoUpgrade *bool `json:"autoUpgrade,omitempty"`
	// Paused starts no upgrade. Default that of spec.driver.upgradePolicy.
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// MaxParallelUpgrades is how many nodes are upgraded at a time. Default that of spec.driver.upgradePolicy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MaxParallelUpgrades *int32 `json:"maxParallelUpgrades,omitempty"`
	// MaxUnavailable is how many nodes of the node pool may be unavailable. Default that of spec.driver.upgradePolicy.
	//
	// It is a number, in quotes of at most 9 digits, or a percentage such as 25%. A negative number counts as 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}|[0-9]+%)$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PullImages pulls the images of the new driver before a node is cordoned.
	// +optional
	PullImages *bool `json:"pullImages,omitempty"`
	// Timeouts limit the steps of an upgrade.
	// +optional
	Timeouts *UpgradeTimeoutsSpec `json:"timeouts,omitempty"`
	// WaitForCompletion waits for pods on a cordoned node.
	// +optional
	WaitForCompletion *WaitForCompletionSpec `json:"waitForCompletion,omitempty"`
	// PodDeletion evicts the pods that use GPUs.
	// +optional
	PodDeletion *PodDeletionSpec `json:"podDeletion,omitempty"`
	// Drain evicts the other pods of a node too.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// UpgradeTimeoutsSpec limits steps of the upgrade of a node.
type UpgradeTimeoutsSpec struct {
	// ImagePullSeconds is how long the images of the new driver may take to be pulled; 0 means no limit. Default 600.
	//
	// The node then keeps its driver, and is tried again later.
	// +optional
	ImagePullSeconds *TimeoutSeconds `json:"imagePullSeconds,omitempty"`
	// DriverSeconds is how long the new driver may take to be ready; 0 means no limit. Default 1800.
	//
	// The node then stays cordoned. It is uncordoned once the driver is ready and validated.
	// +optional
	DriverSeconds *TimeoutSeconds `json:"driverSeconds,omitempty"`
	// ValidationSeconds is how long the validation of the new driver may take; 0 means no limit. Default 600.
	// +optional
	ValidationSeconds *TimeoutSeconds `json:"validationSeconds,omitempty"`
}

// WaitForCompletionSpec selects the pods to wait for.
type WaitForCompletionSpec struct {
	// PodSelector is a label selector for the pods to wait for, in all namespaces. Empty (default) waits for none.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is the maximum wait in seconds; 0 (default) means no limit. Pods are evicted after it.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
}

// PodDeletionSpec configures the eviction of pods that use GPUs.
type PodDeletionSpec struct {
	// Force also evicts pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// TimeoutSeconds is how long the pods of a node may take to end, in seconds; 0 means no limit. Default 300.
	//
	// The node is then drained if drain is enabled; if not, it is uncordoned with its old driver.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir also evicts pods with emptyDir volumes, whose data is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}

// DrainSpec configures the draining of nodes.
type DrainSpec struct {
	// Enable drains a node if the eviction of its GPU pods takes too long. Default false.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// Force also evicts pods that no controller would replace. Default false.
	// +optional
	Force *bool `json:"force,omitempty"`
	// PodSelector is a label selector that limits the drain to matching pods. Empty (default) drains all pods.
	//
	// Of pods with the label nvidia.com/gpu-driver-upgrade-drain.skip=true, only those that use GPUs are evicted.
	// +optional
	PodSelector PodSelector `json:"podSelector,omitempty"`
	// TimeoutSeconds is how long the drain of a node may take, in seconds; 0 means no limit. Default 300.
	// +optional
	TimeoutSeconds *TimeoutSeconds `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir also evicts pods with emptyDir volumes, whose data is lost. Default false.
	// +optional
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}
