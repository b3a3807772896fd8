package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxNamedLeft is how many nodes the message of a policy that is being removed names.
const maxNamedLeft = 3

// Removal is the result of a pass that removes the stack of a deleted policy.
type Removal struct {
	Namespace string
	// Left are the nodes that have something of the stack left, by name.
	Left []*fleet.Entry
	// Err is what failed.
	Err error
}

// Removing returns the status of a policy whose stack is being removed.
func Removing(policy *v1.ClusterPolicy, in Removal) v1.ClusterPolicyStatus {
	status := withoutStack(policy, in.Namespace)
	total := int32(len(in.Left))
	if before := policy.Status.NodeSummary; before != nil {
		total = max(total, before.Total)
	}
	left, failed := heldFirst(in.Left)
	status.NodeSummary = &v1.NodeSummary{
		Total: total, Progressing: int32(len(left) - failed), Degraded: int32(failed), ReadyOfTotal: ratio(0, int(total)),
	}
	for _, entry := range left[:min(len(left), maxListed)] {
		status.Nodes = append(status.Nodes, removingNode(entry))
	}
	status.NodeSummary.Listed = int32(len(status.Nodes))
	setConditions(&status, removalFinding(in, left, failed, int(total)))
	return status
}

// heldFirst returns the nodes with those first that do not go on by themselves: failed, held, then all others. It also
// returns how many have failed.
func heldFirst(entries []*fleet.Entry) (ordered []*fleet.Entry, failures int) {
	var failed, held, others []*fleet.Entry
	for _, entry := range entries {
		switch removalReason(entry) {
		case v1.ReasonRemovalFailed:
			failed = append(failed, entry)
		case v1.ReasonRemovalHeld:
			held = append(held, entry)
		default:
			others = append(others, entry)
		}
	}
	return append(append(failed, held...), others...), len(failed)
}

// removalReason returns the reason of a node.
func removalReason(entry *fleet.Entry) string {
	switch {
	case entry.WriteError != "":
		return v1.ReasonRemovalFailed
	case entry.Removal != nil:
		return entry.Removal.Step.Reason()
	}
	return v1.ReasonRemoving
}

func removingNode(entry *fleet.Entry) v1.NodeStatus {
	node := v1.NodeStatus{
		Name: entry.Facts.Name, Stage: v1.StageDiscovered, Pool: entry.Facts.Pool, Reason: removalReason(entry),
	}
	node.Message = text.Truncate(removalMessage(entry), maxMessage)
	return node
}

// removalMessage returns what the node waits for.
func removalMessage(entry *fleet.Entry) string {
	switch {
	case entry.WriteError != "":
		return entry.WriteError
	case entry.Removal != nil:
		return entry.Removal.Step.Message
	}
	return ""
}

// removalFinding returns what the conditions report. The first of the nodes that are left have failed.
func removalFinding(in Removal, left []*fleet.Entry, failed, total int) finding {
	found := finding{ready: metav1.ConditionFalse, reason: v1.ReasonRemoving, progressing: true}
	switch {
	case in.Err != nil:
		found.message = "removing the stack: " + errorText(in.Err)
		return found
	case len(left) == 0:
		found.message = "removing the stack: no node is left, and its objects are being deleted"
		return found
	}
	parts := []string{fmt.Sprintf("removing the stack: %d of %d nodes left", len(left), total)}
	for _, entry := range left[:min(len(left), maxNamedLeft)] {
		if message := removalMessage(entry); message != "" {
			parts = append(parts, entry.Facts.Name+": "+message)
		}
	}
	if more := len(left) - maxNamedLeft; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	found.message = strings.Join(parts, "; ")
	if failed > 0 {
		found.waitingReason, found.waitingFor = found.reason, found.message
		found.degraded, found.reason = true, v1.ReasonRemovalFailed
	}
	return found
}
