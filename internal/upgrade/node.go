package upgrade

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// Node is what is known of one GPU node. Group names the Policy that applies to it.
type Node struct {
	Name  string
	UID   types.UID
	Group string

	// State in the label; any other text for one that is unknown. Record is nil if there is none; Unreadable is then why
	// an annotation cannot be decoded.
	State      State
	Record     *Record
	Unreadable string
	// InitiallyCordoned: NVIDIA's operator has recorded that the node was cordoned before its upgrade.
	InitiallyCordoned bool
	// Requested and Skip are the annotation and the label by which users request an upgrade, and exclude the node.
	Requested, Skip bool

	// Unschedulable: the node is cordoned. KubeletReady: its condition Ready is True. GPUReady: its GPUs can be used, or
	// all works but nothing is to offer them.
	Unschedulable, KubeletReady, GPUReady bool
	// NotReadySince is since when KubeletReady is false; zero if it is true or unknown.
	NotReadySince time.Time
	// ReadySince is since when KubeletReady is true; zero if it is false or unknown.
	ReadySince time.Time
	// BootID changes with each boot.
	BootID string

	// MIG is what is known of its MIG layout.
	MIG MIG
	// Installs: the operator installs the driver on the node. If not, an upgrade there ends.
	Installs bool
	// Target is the digest of the template of the DaemonSet that the node's driver comes from; empty while unknown.
	Target string
	// MoveTo is the driver pool that the node has to move to; empty for none. Its driver is then outdated.
	MoveTo string
	// Driver is the node's driver pod; nil for none.
	Driver *Pod
	// Validator is the validator's pod; nil for none. ValidatorWanted: one is expected on the node, now or later.
	// ValidatorPaused is what keeps it off for now; empty if nothing does.
	Validator       *Pod
	ValidatorWanted bool
	ValidatorPaused string
	// Dependants are the pods of operands that need the driver on the node, the validator's among them. They are set at
	// least where the driver is being replaced.
	Dependants []Pod
	// Pull is the pod that pulls the images of the new driver; nil for none.
	Pull *Pod
	// Failing is why calls for the node fail, and FailingSince since when they do; empty if they succeed.
	Failing      string
	FailingSince time.Time
	// Workload are the pods of users, read from the API server in this pass; nil if they were not read, see NeedsWorkload.
	Workload *Workload
}

// Pod is a pod of an operand.
type Pod struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Digest of the template that it was created from.
	Digest string
	// Ready; or Reason and Message why it is not, Failed if waiting does not help.
	Ready, Failed   bool
	Reason, Message string
	// Ending: it is being deleted, and is to be gone at EndsAt; zero if that is unknown.
	Ending bool
	EndsAt time.Time
	// Unloading: its first container, k8s-driver-manager, has not finished, so that an earlier driver may be loaded.
	Unloading bool
}

// Workload are the pods of users on a node that have not ended.
type Workload = drain.Workload

// WorkloadPod is a pod of a user.
type WorkloadPod = drain.Pod

// NeedsWorkload reports whether the next step of the node may depend on its Workload. In StateRequired it does only if
// the node also has a slot, see Slots.Valid.
func (n *Node) NeedsWorkload() bool {
	record := n.ownRecord()
	if record == nil || !n.Installs || !n.KubeletReady {
		return false
	}
	switch record.State {
	case StateRequired, StateWaitForJobs, StatePodDeletion, StateDrain:
		return true
	case StatePodRestart:
		return n.Driver != nil && !n.Driver.Ending && (n.stale() || n.Driver.Unloading)
	default:
		return false
	}
}

// AwaitsPods reports whether the node does not go on while the pods of its Workload are there. Only then may what was
// read stay in use: what the others decide, such as that no job runs, cannot be undone.
func (n *Node) AwaitsPods() bool {
	record, layout := n.ownRecord(), n.ownDrain()
	upgrading := record != nil && record.State.InProgress()
	if n.Workload == nil || !upgrading && !n.relayouting() {
		// What it begins with depends on which pods there are then.
		return false
	}
	users, jobs := len(n.Workload.Users) > 0, len(n.Workload.Jobs) > 0
	switch {
	case upgrading && record.State == StateWaitForJobs:
		return jobs
	case !upgrading && layout.State == DrainJobs:
		return users && jobs
	default:
		return users
	}
}

// ownRecord is the record of this node; nil if there is none, or one that was copied from a deleted Node.
func (n *Node) ownRecord() *Record {
	if n.Record == nil || n.Record.UID != n.UID {
		return nil
	}
	return n.Record
}

// outdated reports whether the driver pod was created from another template than the node needs.
func (n *Node) outdated() bool {
	if n.MoveTo != "" {
		return true
	}
	return n.Target != "" && n.Driver != nil && n.Driver.Digest != n.Target
}

// stale reports whether the driver pod has to be replaced in the round of the record. It needs a driver pod.
func (n *Node) stale() bool {
	if n.outdated() {
		return true
	}
	record := n.ownRecord()
	return record != nil && (record.Requested || record.Moves) && n.Driver.UID == record.DriverPod
}

// inSync reports whether the driver pod is the one that the node needs, though it may not be ready.
func (n *Node) inSync() bool {
	return n.Target != "" && n.Driver != nil && !n.Driver.Ending && !n.stale()
}

// olderThanDriver returns the dependants that were created before the driver pod, or in the same second, and are not
// being deleted. It needs a driver pod.
func (n *Node) olderThanDriver() []WorkloadPod {
	var older []WorkloadPod
	for i := range n.Dependants {
		if pod := &n.Dependants[i]; !pod.Ending && !pod.Created.After(n.Driver.Created) {
			older = append(older, WorkloadPod{Name: pod.Name, UID: pod.UID})
		}
	}
	return older
}

// cordonedByOthers reports whether the node is cordoned, and not by this operator.
func (n *Node) cordonedByOthers() bool {
	record := n.ownRecord()
	return n.Unschedulable && (record == nil || !record.Cordoned)
}

// brokenByDriver reports whether the node's GPUs cannot be used because of its driver. An upgrade of such a node makes
// nothing worse.
func (n *Node) brokenByDriver() bool {
	return n.KubeletReady && !n.GPUReady && n.Driver != nil && !n.Driver.Ready && !n.cordonedByOthers()
}

// unavailable returns why the GPUs of the node cannot be used by new pods; empty if they can.
func (n *Node) unavailable() string {
	switch {
	case n.Unschedulable:
		return "is cordoned"
	case !n.KubeletReady:
		return "does not report"
	case !n.GPUReady:
		return "has no GPUs ready"
	case n.MIG.Changing:
		return doesLayout
	default:
		return ""
	}
}
