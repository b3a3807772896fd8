package fleet

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// Entry is what is known of one node. It is not changed once it is set.
type Entry struct {
	// Facts of the node, as they were read.
	Facts nodeinfo.Facts
	// Basis is the version of what the node was assessed by; 0 where it was not assessed.
	Basis uint64
	// Planned is what the decisions say about the node; nil where the operator does not manage it.
	Planned *Planned
	// Latest is the verdict on the node, and Report what of it is reported. Both are empty for a node that the operator
	// does not manage.
	Latest assess.Assessment
	Report assess.Report
	// Discovering are the verdicts on the operands that discover GPUs, on a node that has not been discovered yet.
	Discovering map[operand.Name]readiness.Verdict
	// NodePool is the pool of spec.nodePools and DriverPool the driver pool that the node belongs to; empty for none.
	NodePool, DriverPool string
	// WriteError is why the last write to the Node failed; empty if it did not.
	WriteError string
	// Writes is what the node controller keeps for its next write.
	Writes Writes
}

// Planned is the plan for one node. It holds until the node or the decisions change, and is not changed itself.
type Planned struct {
	// From is what the plan was made from.
	From Source
	// Node is the plan.
	Node plan.Node
}

// Source is what the plan and the labels of a node follow from: the Node that was read, and what was decided.
type Source struct {
	// Version is the resource version of the Node.
	Version string
	// Decisions are nil in the zero Source, which is nothing's.
	Decisions *plan.Decisions
	// SelectorLabelExpired is that of the facts, which time changes.
	SelectorLabelExpired bool
}

// LabelSource is a node whose labels are as they are to be.
type LabelSource struct {
	Source
	// Running is what worked on it.
	Running plan.Running
}

// Writes is what the node controller keeps of its writes to one Node. All of it may be lost: that costs a write that is
// refused, or one that comes early.
type Writes struct {
	// Version is the resource version that the last write led to; empty for none.
	Version string
	// LabelsFrom is when no label had to be changed; empty for never.
	LabelsFrom LabelSource
	// After is when the next write may be tried, and Backoff the wait after the last that failed; 0 where none did.
	After   time.Time
	Backoff time.Duration
	// Failed: the condition that the Node has is of a failure.
	Failed bool
	// Stage is the stage and reason that the condition does not show yet, and StageSince since when the node has been
	// there; empty for none.
	Stage      string
	StageSince time.Time
	// Settle is how long the next stage must last before it is written; 0 for the shortest.
	Settle time.Duration
	// Joined is when the node began to join, and Reached how many stages of its joining are counted.
	Joined  time.Time
	Reached int
}

// Managed reports whether the operator manages the node.
func (e *Entry) Managed() bool { return e.Facts.Managed() }

// StatusAssessment is the verdict that the policy's status aggregates: the report, or the latest stage of a node that is not ready
// in either.
func (e *Entry) StatusAssessment() *assess.Assessment {
	if !e.Report.Ready() && !e.Latest.Ready() {
		return &e.Latest
	}
	return &e.Report.Assessment
}

// Starting reports whether the node is on the way to ready.
func (e *Entry) Starting() bool {
	return e.Basis != 0 && e.Latest.State == readiness.Progressing && !e.Latest.Excluded
}
