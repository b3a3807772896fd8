package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpgradeStatus is the state of the driver upgrades.
type UpgradeStatus struct {
	// Target is the driver that most outdated nodes get: the tag of its image, or the start of a digest.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Target string `json:"target,omitempty"`
	// Pending nodes wait for their upgrade.
	Pending int32 `json:"pending"`
	// InProgress nodes are being upgraded.
	InProgress int32 `json:"inProgress"`
	// Done nodes have the current driver.
	Done int32 `json:"done"`
	// Failed nodes, whose upgrade has failed.
	Failed int32 `json:"failed"`
	// Held nodes are those pending and in-progress ones that something keeps from going on.
	Held int32 `json:"held"`
	// RemainingSeconds is an estimate of how long the pending and in-progress nodes take, renewed when a number changes.
	// +optional
	RemainingSeconds int32 `json:"remainingSeconds,omitempty"`
	// Message names the first failure, or else what keeps a node from going on.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// NodeUpgradeStatus is the state of one node's driver upgrade.
type NodeUpgradeStatus struct {
	// State as in the node label nvidia.com/gpu-driver-upgrade-state.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State string `json:"state,omitempty"`
	// Since when the upgrade has been in this state.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Held: something keeps the upgrade from going on.
	// +optional
	Held bool `json:"held,omitempty"`
	// Reason of the state, in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
