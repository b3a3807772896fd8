package healthaction

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Node is what is known of one node.
type Node struct {
	Name string
	UID  types.UID
	// Group are the nodes that can replace it: those of its node pool with the same product.
	Group string
	// Managed: the operator manages it as a GPU node. Watched: it also has a health agent.
	Managed, Watched bool
	// Reported: the agent has reported since the boot of the node. Report is what.
	Reported bool
	Report   gpuhealth.Report
	// InService: the node does its work, as far as taints and cordons permit: new pods can use its GPUs, or it is left to
	// others to offer them.
	InService bool
	// Unschedulable: it is cordoned. Tainted: it has the taint labels.TaintUnhealthy.
	Unschedulable, Tainted bool
	// HasRecord: it has the annotation. Record is its content; nil if it cannot be decoded.
	HasRecord bool
	Record    *Record
	// Consent is the annotation of users.
	Consent string
	// Upgrading: a driver upgrade works on it, or has left it cordoned; or, if Relayouting, a drain for its MIG layout
	// does. UpgradeCordoned: it was one of them that has cordoned it.
	Upgrading, Relayouting, UpgradeCordoned bool
	// OtherActor is another program that works on the node, such as "NVSentinel"; empty for none.
	OtherActor string
	// ReliesOnCordon is another program that needs the node to stay cordoned; empty for none.
	ReliesOnCordon string
	// DriverReady: the driver works, or is not the operator's.
	DriverReady bool
	// RejectedUntil: the API server has rejected the action for so long that it is given up until then; zero for not.
	// Rejected is the API server's message; empty if it has not answered.
	RejectedUntil time.Time
	Rejected      string
}

// ownRecord is the record of this node; nil if there is none, or one that was copied from a deleted Node.
func (n *Node) ownRecord() *Record {
	if n.Record == nil || n.Record.UID != n.UID {
		return nil
	}
	return n.Record
}

// isDone reports whether the node has the taint or the cordon that its record is about.
func (n *Node) isDone(record *Record) bool {
	if record.Action == v1.HealthActionCordon {
		return n.Unschedulable && !n.UpgradeCordoned
	}
	return n.Tainted
}

// shows returns what the operator has done with the node; empty for nothing.
func (n *Node) shows() v1.HealthAction {
	switch record := n.ownRecord(); {
	case n.Tainted:
		return v1.HealthActionTaint
	case record != nil && record.Cordons(n.UID) && n.isDone(record):
		return v1.HealthActionCordon
	default:
		return ""
	}
}

// takesPlace reports whether the node counts as acted on.
func (n *Node) takesPlace() bool { return n.Tainted || n.ownRecord().takesPlace() }

// isHealthy reports whether the node can replace one of its group.
func (n *Node) isHealthy() bool {
	return n.Managed && n.InService && !n.Unschedulable && !n.takesPlace() && n.OtherActor == "" && !n.Upgrading &&
		len(n.Report.Faults) == 0 && (n.Reported || !n.Watched)
}

// forbids reports whether a user forbids all actions.
func (n *Node) forbids() bool { return n.Consent == labels.HealthForbid }

// approves reports whether a user has approved the action for the fault.
func (n *Node) approves(fault string) bool { return n.Consent == labels.HealthApprove+fault }

// deciding returns the fault that decides about the node, nil if there is no action for any. Faults whose action was
// undone count only if there are no others. It is the one with the strongest action, then one that is acted on at once,
// then the worst, then the oldest.
func (p *Policy) deciding(n *Node) *want {
	w := &want{node: n}
	undone := n.ownRecord().undone()
	for _, fault := range p.actedOn(n) {
		id := faultID(n.Report.Boot, fault)
		isUndone := slices.Contains(undone, id)
		if isUndone {
			w.undone = append(w.undone, id)
		}
		if w.fault == nil || cmp.Or(first(isUndone, w.isUndone), p.compare(fault, w.fault)) > 0 {
			w.fault, w.id, w.isUndone = fault, id, isUndone
		}
	}
	if w.fault == nil {
		return nil
	}
	w.action, w.approved = p.Actions[w.fault.Class], n.approves(w.id)
	return w
}

// actedOn returns the faults of the node for which there is an action.
func (p *Policy) actedOn(n *Node) []*gpuhealth.Fault {
	var found []*gpuhealth.Fault
	for i := range n.Report.Faults {
		if fault := &n.Report.Faults[i]; rank(p.Actions[fault.Class]) > 0 {
			found = append(found, fault)
		}
	}
	return found
}

// compare returns a positive number if fault a decides rather than b.
func (p *Policy) compare(a, b *gpuhealth.Fault) int {
	return cmp.Or(
		cmp.Compare(rank(p.Actions[a.Class]), rank(p.Actions[b.Class])), first(p.isUrgent(b), p.isUrgent(a)),
		a.Class.Compare(b.Class), b.Since.Compare(a.Since), strings.Compare(b.PCI, a.PCI),
	)
}

// faultID identifies a fault for users: another class, another device or another boot is another fault.
func faultID(boot string, fault *gpuhealth.Fault) string {
	const length = 8
	sum := digest.Of(strings.Join([]string{boot, fault.PCI, string(fault.Class)}, " "))
	return idPrefix(fault.Class) + sum[:length]
}

// idPrefix is what the IDs of the faults of a class begin with.
func idPrefix(class gpuhealth.Class) string { return strings.ToLower(string(class)) + "-" }

// isStorm reports whether so many nodes have faults that began within a short time that the breaker trips.
func (c *Cluster) isStorm() bool {
	type onset struct {
		at   time.Time
		node int
	}
	var onsets []onset
	nodes := 0
	for i := range c.Nodes {
		if c.Nodes[i].Managed {
			nodes++
		}
		for _, fault := range c.Nodes[i].Report.Faults {
			onsets = append(onsets, onset{fault.Since, i})
		}
	}
	slices.SortFunc(onsets, func(a, b onset) int { return a.at.Compare(b.at) })
	first := 0
	within := map[int]int{}
	for _, last := range onsets {
		within[last.node]++
		for ; last.at.Sub(onsets[first].at) > stormWindow; first++ {
			if within[onsets[first].node]--; within[onsets[first].node] == 0 {
				delete(within, onsets[first].node)
			}
		}
		if len(within) >= stormNodes && len(within)*stormPart > nodes {
			return true
		}
	}
	return false
}
