package fleet

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Entry is the state of one node. It is immutable once set.
type Entry struct {
	// Facts read from the Node.
	Facts nodeinfo.Facts
	// BasisVersion is the version of the Basis that the node was assessed by; 0 if it was not assessed.
	BasisVersion uint64
	// Planned is the plan for the node; nil if it is not managed, or the Basis has no Decisions.
	Planned *PlannedNode
	// Latest is the latest assessment, and Report the published one. Both are empty without a plan.
	Latest assess.Assessment
	Report assess.Report
	// Discovering are the verdicts on the operands that discover GPUs, for a node that has no discovery labels yet.
	Discovering map[operand.Name]readiness.Verdict
	// NodePool is the node pool and DriverPool the driver pool that the node belongs to; empty for none.
	NodePool, DriverPool string
	// Removal is how far the removal of the stack has got on the node; nil unless it was assessed by a Basis with one.
	Removal *NodeRemoval
	// ReadersDown: pods of the node that read the configuration of the device plugin do not work, though all that they
	// need does, and they did before they read it. ReadDigest is that of its content; empty for none.
	ReadersDown bool
	ReadDigest  string
	// Resting is what the node means for a plan of driver upgrades that has nothing to do or to report for it, see
	// upgrade.Cluster.AtRest; nil if a plan has to look at the node, or that is not known.
	Resting *upgrade.Resting
	// WriteError is the error of the last write to the Node; empty if it succeeded.
	WriteError string
	// Boot is what is known of the node's last boot.
	Boot Boot
	// Writes is the node controller's record of its writes.
	Writes Writes
}

// Boot is what is known of a node's last boot. It may be lost: then pods that the kubelet refused may not be reported.
type Boot struct {
	// ID is the boot ID of the node; empty if its kubelet reports none.
	ID string
	// After is a time at which the node had not booted yet: pods that were refused before are not looked for.
	After time.Time
	// LookAt is when to look for refused pods, if GPUs can be used then; zero for never.
	LookAt time.Time
	// Refused describes the refused pods that are left; empty for none.
	Refused string
}

// PlannedNode is the plan for one node, and what it was computed from. It is immutable.
type PlannedNode struct {
	Inputs   PlanInputs
	NodePlan plan.NodePlan
}

// PlanInputs is what the plan and the labels of a node are computed from. The zero PlanInputs matches none.
type PlanInputs struct {
	// Version is the resource version of the Node.
	Version   string
	Decisions *plan.Decisions
	// SelectorLabelGraceOver is the fact of this name. It depends on the time, not only on the Node.
	SelectorLabelGraceOver bool
	// MIGOverdue is the fact of this name, which depends on the time too.
	MIGOverdue bool
}

// LabelInputs is what the labels of a node are computed from.
type LabelInputs struct {
	PlanInputs
	// ReadyPods of the node.
	ReadyPods plan.ReadyPods
}

// Tenants are pods that use the GPUs of a node.
type Tenants struct {
	// Of is what they were read for, Since when first and At when last.
	Of        string
	Since, At time.Time
	// Pods as namespace/name.
	Pods []string
}

// MIGCause is what the MIG manager says about a MIG layout that it could not apply.
type MIGCause struct {
	// Of is the failure that it is about; empty for none.
	Of string
	// Words are empty if they are not known.
	Words string
	// Reads is how often the log was read, and RetryAt when to read it again; zero for never.
	Reads   int
	RetryAt time.Time
}

// Sought reports whether the words were looked for, and are not looked for any more.
func (c *MIGCause) Sought() bool { return c.Reads > 0 && c.RetryAt.IsZero() }

// Writes is the node controller's record of its writes to one Node. It may be lost: that costs a rejected or an early
// write.
type Writes struct {
	// Version is the resource version after the last write; empty for none.
	Version string
	// LabelInputs are those for which the node's labels were last found up to date; empty for none.
	LabelInputs LabelInputs
	// Tenants are the pods that use the node's GPUs, as last read for a state of its MIG layout.
	Tenants Tenants
	// MIGCause is why the MIG layout could not be applied, as last read from the log of the MIG manager.
	MIGCause MIGCause
	// RetryAt is when the next write may be tried, and Backoff the wait after the last failed write; 0 if none failed.
	RetryAt time.Time
	Backoff time.Duration
	// FailureWritten: the condition on the Node reports a failure.
	FailureWritten bool
	// Stage is the stage and reason that the condition does not show yet, StageSince since when the node has been there,
	// and StageDwell how long that must last; empty for none.
	Stage      string
	StageSince time.Time
	StageDwell time.Duration
	// NextDwell is how long the next stage must last before it is written; 0 for the minimum.
	NextDwell time.Duration
	// Joined is when the node started to join, and Reached the number of stages that are counted in its join metrics.
	Joined  time.Time
	Reached int
}

// Managed reports whether the operator manages the node.
func (e *Entry) Managed() bool { return e.Facts.Managed() }

// StatusAssessment returns the assessment that the policy's status aggregates: the reported one, but the latest one of
// a node that is ready in neither, so that its stage is current.
func (e *Entry) StatusAssessment() *assess.Assessment {
	if !e.Report.Ready() && !e.Latest.Ready() {
		return &e.Latest
	}
	return &e.Report.Assessment
}

// Starting reports whether the node is progressing.
func (e *Entry) Starting() bool {
	return e.BasisVersion != 0 && e.Latest.State == readiness.Progressing && !e.Latest.Excluded
}
