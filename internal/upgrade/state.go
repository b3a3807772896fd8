package upgrade

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is the value of the label nvidia.com/gpu-driver-upgrade-state, as NVIDIA's operator writes it. Dashboards and
// scripts read it.
type State string

// The states in the order of an upgrade.
const (
	// StateNone: the label is absent.
	StateNone State = ""
	// StateRequired: the driver is outdated, or an upgrade was requested. The node waits for a slot, and then for the
	// new image, with its GPUs in use.
	StateRequired State = "upgrade-required"
	// StateCordon is entered by NVIDIA's operator only; this one cordons the node in the patch that leaves StateRequired.
	StateCordon State = "cordon-required"
	// StateWaitForJobs: the node is cordoned, and pods that waitForCompletion selects still run.
	StateWaitForJobs State = "wait-for-jobs-required"
	// StatePodDeletion: the pods that use GPUs are evicted.
	StatePodDeletion State = "pod-deletion-required"
	// StateDrain: all pods are evicted, since the eviction of those with GPUs took too long.
	StateDrain State = "drain-required"
	// StateNodeMaintenance belongs to a mode that NVIDIA's operator does not offer.
	StateNodeMaintenance State = "node-maintenance-required"
	// StatePostMaintenance belongs to the same mode.
	StatePostMaintenance State = "post-maintenance-required"
	// StatePodRestart: the old driver pod is deleted, and the new one starts.
	StatePodRestart State = "pod-restart-required"
	// StateValidation: the driver is ready, and the validator has not passed with it yet.
	StateValidation State = "validation-required"
	// StateUncordon is entered by NVIDIA's operator only; this one uncordons the node in the patch to StateDone.
	StateUncordon State = "uncordon-required"
	// StateDone: the driver is up to date.
	StateDone State = "upgrade-done"
	// StateFailed: a deadline has passed, the images cannot be pulled, the node does not report, or another client has
	// uncordoned it. The reason and the message in the record have the cause.
	StateFailed State = "upgrade-failed"
)

// InProgress reports whether an upgrade in this state has cordoned the node and has not ended.
func (s State) InProgress() bool {
	switch s {
	case StateCordon, StateWaitForJobs, StatePodDeletion, StateDrain, StateNodeMaintenance, StatePostMaintenance,
		StatePodRestart, StateValidation, StateUncordon:
		return true
	case StateNone, StateRequired, StateDone, StateFailed:
	}
	return false
}

// continues reports whether the operator continues an upgrade from a label with this state and no record: one that
// NVIDIA's operator writes without a mode that only it has.
func (s State) continues() bool {
	return s.InProgress() && s != StateNodeMaintenance && s != StatePostMaintenance
}

// Record is what the annotation labels.UpgradeRecord of a Node has beside the State. It is written with the State in
// one patch.
type Record struct {
	// UID of the Node. A record with another one was copied from a deleted Node and is ignored.
	UID types.UID `json:"uid"`
	// Round numbers the upgrades of the node. A slot is valid for one round.
	Round int64 `json:"round"`
	// State as in the label. Without automatic upgrades the label is absent in StateRequired; so it is here only.
	State State `json:"state"`
	// Since is when the State was entered, and Started when the round left StateRequired; zero before.
	Since   time.Time `json:"since,omitzero"`
	Started time.Time `json:"started,omitzero"`
	// Target is the digest of the pod template that the round installs, and Driver that of the driver pod which it found.
	Target string `json:"target,omitempty"`
	Driver string `json:"driver,omitempty"`
	// DriverPod is the UID of that driver pod: a pod with another one was created in this round.
	DriverPod types.UID `json:"driverPod,omitempty"`
	// Pulled is the digest of the template whose images were pulled before the round left StateRequired.
	Pulled string `json:"pulled,omitempty"`
	// Moves: the round moves the node to another driver pool, so its driver pod is replaced whatever its digest.
	Moves bool `json:"moves,omitempty"`
	// Requested: a user requested this round, so it is due though the driver is up to date or upgrades are not automatic.
	Requested bool `json:"requested,omitempty"`
	// Cordoned: this operator has cordoned the node, so it also uncordons it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Restarted: the old driver pod was deleted, in this round or in the failed one before it, so the node has no working
	// driver until the new one is validated.
	Restarted bool `json:"restarted,omitempty"`
	// BootID of the Node when the round began. A driver pod that starts after a reboot needs no eviction.
	BootID string `json:"bootID,omitempty"`
	// Reason, of package api/v1, and Message explain StateFailed, or why a round in StateRequired has to wait for RetryAt.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Failures is how many rounds in a row have failed for Target while the old driver worked.
	Failures int `json:"failures,omitempty"`
	// RetryAt is when a failed round is tried again; zero for never by time.
	RetryAt time.Time `json:"retryAt,omitzero"`
}
