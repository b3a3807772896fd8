package plan

import (
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Action is what a step does.
type Action string

const (
	// Apply the operand's objects.
	Apply Action = "Apply"
	// Remove what exists of the operand.
	Remove Action = "Remove"
	// Hold keeps what exists of the operand as it is.
	Hold Action = "Hold"
)

// Step is what happens to one operand in a pass.
type Step struct {
	Operand operand.Operand
	Action  Action
	// State, Reason and Message explain to the user why the step is not Apply; empty otherwise.
	State           v1.OperandState
	Reason, Message string
	// Instances to render; for Apply only.
	Instances []operand.Instance
	// KeepUnrendered: some nodes cannot be served as specified, so objects of the operand that are not rendered are kept.
	KeepUnrendered bool
	// AwaitedMarkers are the markers that the operand's pods wait for.
	AwaitedMarkers []labels.Marker
	// WritesMarkers reports for each marker of the operand whether its pods write it.
	WritesMarkers map[labels.Marker]bool
}

// Plan is the steps of a pass, in order, with the Decisions that they follow from. A zero Plan has no Decisions.
type Plan struct {
	*Decisions
	// Input is that of Decisions, with the Layouts of these nodes and the Optional kinds of the cluster.
	Input operand.Input
	Steps []Step
	Pools []nodeinfo.Pool
	// StandIns: there is no node that may run operands, and others stand for those to come; see Decisions.StandIns.
	StandIns bool
	// nodePoolNodes are the GPU nodes that may run operands, by the node pool that they belong to.
	nodePoolNodes map[string][]nodeinfo.Facts
}

// Compute plans a pass. optional are the optional kinds that the cluster serves.
func Compute(d *Decisions, optional map[operand.OptionalKind]bool, nodes []nodeinfo.Facts) Plan {
	containers := d.Input.ContainerNodes(nodes)
	plan := Plan{Decisions: d, Input: d.Input, nodePoolNodes: map[string][]nodeinfo.Facts{}}
	plan.Input.Layouts, plan.Input.Optional = nodeinfo.Layouts(containers), optional
	plan.Pools = nodeinfo.Pools(plan.filterDriverNodes(containers), func(node nodeinfo.Facts) nodeinfo.PoolCriteria {
		return plan.driverInput(node).PoolCriteria()
	})
	plan.collectNodePoolNodes(nodes)
	plan.StandIns = slices.ContainsFunc(nodes, func(node nodeinfo.Facts) bool { return node.StandsIn })
	mayRun := plan.mayRunOperands()
	for _, o := range d.Catalogue {
		step := plan.withNodePools(plan.step(o, nodes))
		for i := range step.Instances {
			step.Instances[i].Image = image.Mirror(d.Input.Spec.Global.Registry, step.Instances[i].Image)
		}
		step.AwaitedMarkers = mayRun.AwaitedMarkers(o)
		step.WritesMarkers = mayRun.WritesMarkers(o)
		plan.Steps = append(plan.Steps, step)
	}
	return plan
}

func (p Plan) step(o operand.Operand, nodes []nodeinfo.Facts) Step {
	decision := p.decisions[o.Name]
	switch decision.Choice {
	case operand.Absent:
		return Step{Operand: o, Action: Remove, State: v1.OperandDisabled, Reason: decision.Reason, Message: decision.Message}
	case operand.Refused:
		return refusedStep(o, decision.Reason, decision.Message)
	case operand.Install:
	}
	if len(o.Workloads) > 0 && !p.neededBy(o, nodes) {
		return p.notNeededStep(o, nodes)
	}
	if blocked := p.checkCluster(o); blocked.Choice != operand.Install {
		return Step{Operand: o, Action: Hold, State: v1.OperandWaiting, Reason: blocked.Reason, Message: blocked.Message}
	}
	instances, keep, err := p.instances(o)
	if err != nil {
		return refusedStep(o, v1.ReasonInvalidSpec, err.Error())
	}
	return Step{Operand: o, Action: Apply, Instances: instances, KeepUnrendered: keep}
}

// refusedStep returns the step for a refused operand: Invalid until the spec changes, but Error for what could not be
// read, which is retried.
func refusedStep(o operand.Operand, reason, message string) Step {
	state := v1.OperandInvalid
	if reason == v1.ReasonReconcileFailed {
		state = v1.OperandError
	}
	return Step{Operand: o, Action: Hold, State: state, Reason: reason, Message: message}
}

// instances returns the instances of an operand, except for the DaemonSets of node pools. keep reports whether some
// nodes cannot be served as specified.
func (p Plan) instances(o operand.Operand) (instances []operand.Instance, keep bool, err error) {
	if o.PerPool {
		return p.drivers(o)
	}
	instances, err = o.Instances(p.Input, p.Pools)
	return instances, false, err
}

// neededBy reports whether any node is to run the operand. Deploy labels do not count, as a paused node will run it
// again.
func (p Plan) neededBy(o operand.Operand, nodes []nodeinfo.Facts) bool {
	for _, node := range nodes {
		if node.TakesOperands() && p.needs(o, node) {
			return true
		}
	}
	return false
}

// needs reports whether the node is to run the operand, or keeps its driver while NVIDIADriver objects decide for none.
func (p Plan) needs(o operand.Operand, node nodeinfo.Facts) bool {
	choice := p.checkNode(o, node).Choice
	return choice == operand.Install ||
		choice == operand.Refused && o.PerPool && p.Input.UsesNVIDIADrivers() && o.Retains(node)
}
