package upgrade

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// Cluster is the input of a plan.
type Cluster struct {
	Now time.Time
	// Nodes of all groups, by name. Rest has further nodes, which are AtRest and have no slots: their number does not
	// matter to what a plan costs.
	Nodes []Node
	Rest  Rest
	// Policies by group. A node whose group has none is upgraded only if it is in progress.
	Policies map[string]Policy
	// Slots as last read.
	Slots Slots
	// SlotsConflict is why no slot can be granted, for the user, such as that another owner has taken the place that they
	// are kept in; empty if they can be granted. SlotsReason is of package api/v1; empty is ReasonConflict.
	SlotsConflict, SlotsReason string
}

// Slot is the right to upgrade a node in one round, or to change its MIG layout.
type Slot struct {
	UID   types.UID `json:"uid"`
	Round int64     `json:"round"`
	// Layout is the MIG layout, empty for an upgrade; Since is when the slot for it was granted.
	Layout string    `json:"layout,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Evict: the slot was granted although pods may use the GPUs, as these may be evicted.
	Evict bool `json:"evict,omitempty"`
}

// Slots are the granted slots by node.
type Slots map[string]Slot

// Plan is what has to be done now.
type Plan struct {
	// Slots that have to be written first; nil if they are as they should be, or cannot be written because of a
	// SlotsConflict. Steps that depend on them are in the next plan.
	Slots Slots
	// Steps, at most one for each node.
	Steps []Step
	// Report of all nodes.
	Report Report
	// Until is when the plan changes by time alone; zero if never.
	Until time.Time
}

// Action is the kind of a Step.
type Action string

// The actions.
const (
	// ActionPatch: patch the Node with Step.Patch.
	ActionPatch Action = "patch"
	// ActionPull and ActionEndPull: create and delete the pod that pulls the images of the new driver.
	ActionPull    Action = "pull"
	ActionEndPull Action = "end-pull"
	// ActionEvict: evict Step.Pods through the eviction API.
	ActionEvict Action = "evict"
	// ActionDeleteDriver and ActionDeleteDependants: delete Step.Pods, which are pods of the operator, with their UIDs.
	ActionDeleteDriver     Action = "delete-driver"
	ActionDeleteDependants Action = "delete-dependants"
	// ActionLayout: patch the Node with Step.Layout.
	ActionLayout Action = "layout"
)

// Step is one step of one node.
type Step struct {
	Node   string
	Action Action
	// Patch for ActionPatch.
	Patch *Patch
	// Layout for ActionLayout.
	Layout *LayoutPatch
	// Pods for the other actions.
	Pods []WorkloadPod
	// Why the step is due, one sentence for the log.
	Why string
}

// Patch is the one patch of a transition.
type Patch struct {
	// State of the label; StateNone removes it.
	State State
	// Record of the annotation; nil removes it.
	Record *Record
	// Unschedulable is set if not nil.
	Unschedulable *bool
	// EndRequest removes the annotation by which a user requested the upgrade.
	EndRequest bool
	// RememberCordon sets the annotation of NVIDIA's operator for a node that was cordoned before; ForgetCordon removes
	// it.
	RememberCordon, ForgetCordon bool
	// ReleasePool removes the labels that keep the node in its driver pool, so that it moves to another one.
	ReleasePool bool
	// Event is the message of an Event on the Node; empty for none. Warning: it is a warning.
	Event   string
	Warning bool
	// Replaces: the Event is about the text of the annotation that the patch replaces, as it cannot be decoded. A client
	// may write the same text again and again.
	Replaces bool
}

// LayoutPatch is the one patch of a transition of a node whose MIG layout is changed.
type LayoutPatch struct {
	// Request is the MIG layout that is requested by the label; empty for none.
	Request string
	// Drain of the annotation; nil removes it.
	Drain *Drain
	// Unschedulable is set if not nil.
	Unschedulable *bool
	// Event is the message of an Event on the Node; empty for none. Warning: it is a warning.
	Event   string
	Warning bool
}

// Report is the state of all upgrades.
type Report struct {
	// Nodes whose driver is outdated or being upgraded, or whose upgrade has failed, by name of the node.
	Nodes map[string]Progress
	// Pending nodes wait for their upgrade, InProgress are being upgraded, Failed have failed. Held are those of the
	// pending and in-progress ones that something keeps from going on. Done are upgraded to the current target.
	Pending, InProgress, Done, Failed, Held int
	// Target is the digest that most outdated nodes have to reach; empty if no node is outdated.
	Target string
	// Remaining is the estimate of how long the pending and in-progress nodes take; 0 if unknown.
	Remaining time.Duration
}

// Progress is the upgrade of one node.
type Progress struct {
	State State
	// Since is when it entered the state; zero if unknown.
	Since time.Time
	// Held: something keeps the node from going on. Reason, of package api/v1, and Message explain the state.
	Held            bool
	Reason, Message string
}

// Plan returns the next steps. It does not modify the cluster.
func (c *Cluster) Plan() Plan {
	turns, budgets := make([]turn, len(c.Nodes)), c.budgets()
	for i := range c.Nodes {
		n := &c.Nodes[i]
		v := c.driverPlan(n)
		v.beyond = budgets[n.Group].beyond[n.Name]
		turns[i] = v.turn()
	}
	slots := c.grant(turns, budgets)
	plan := Plan{Report: c.report(turns), Until: c.layoutsEnd(slots)}
	if c.SlotsConflict == "" && !maps.Equal(slots, c.Slots) {
		plan.Slots = slots
	}
	for i := range turns {
		n := &c.Nodes[i]
		step, layout := turns[i].step, c.layout(n, budgets[n.Group].beyond[n.Name])
		if step == nil {
			step = layout.step
		}
		if step != nil {
			step.Node = n.Name
			plan.Steps = append(plan.Steps, *step)
		}
		plan.Until = times.Earlier(plan.Until, times.Earlier(turns[i].until, layout.until))
	}
	return plan
}
