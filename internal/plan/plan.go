package plan

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Action is what a step does.
type Action string

const (
	// Apply the operand's objects.
	Apply Action = "Apply"
	// Remove what is there of the operand.
	Remove Action = "Remove"
	// Hold leaves what is there of the operand alone.
	Hold Action = "Hold"
)

// Step is what happens to one operand in a pass.
type Step struct {
	Operand operand.Operand
	Action  Action
	// State, Reason and Message tell the user why the step is not Apply; empty otherwise.
	State           v1.OperandState
	Reason, Message string
	// Instances to render; for Apply only.
	Instances []operand.Instance
	// Holds tells that some nodes cannot be served as the spec asks, so that what is there of the operand
	// and not rendered is left alone.
	Holds bool
	// Waits are the markers that the operand's pods wait for.
	Waits []labels.Marker
	// Proves tells which markers the operand's pods write.
	Proves map[labels.Marker]bool
}

// Plan is what a pass does, in order.
type Plan struct {
	Input operand.Input
	Steps []Step
	Pools []operand.Pool
	// NodePools are those of spec.nodePools, in their order.
	NodePools []NodePool
	// Installed tells which operands the spec does not turn off. One that is held counts: what runs
	// of it goes on proving its markers.
	Installed map[operand.Name]bool
	decisions map[operand.Name]operand.Decision
	// selecting are the same pools, for operand.PoolOf.
	selecting []operand.NodePool
}

// Compute plans a pass for a sorted catalogue.
func Compute(catalogue []operand.Operand, in operand.Input, nodes []operand.NodeFacts) Plan {
	containers := in.Containers(nodes)
	in.Layouts = operand.Layouts(containers)
	plan := ForSpec(catalogue, in)
	plan.Pools = operand.Pools(plan.withDriver(catalogue, containers), func(node operand.NodeFacts) operand.PoolKey {
		return plan.inputOf(node).PoolKey()
	})
	plan.gather(nodes)
	installed := plan.installedOperands(catalogue)
	for _, o := range catalogue {
		step := plan.inPools(plan.step(o, nodes))
		for i := range step.Instances {
			step.Instances[i].Image = image.Mirror(in.Spec.Global.Registry, step.Instances[i].Image)
		}
		step.Waits = operand.Waits(installed, o)
		step.Proves = operand.Proves(installed, o)
		plan.Steps = append(plan.Steps, step)
	}
	return plan
}

// ForSpec decides from the spec alone which operands are installed; enough to plan for one node.
func ForSpec(catalogue []operand.Operand, in operand.Input) Plan {
	plan := Plan{
		Input:     in,
		Installed: map[operand.Name]bool{},
		decisions: map[operand.Name]operand.Decision{},
	}
	for _, o := range catalogue {
		decision := o.Wanted(in)
		plan.decisions[o.Name] = decision
		plan.Installed[o.Name] = decision.Verdict != operand.Absent
	}
	plan.selecting = operand.NodePools(in.Spec)
	for _, pool := range plan.selecting {
		decided := plan.nodePool(catalogue, pool)
		plan.NodePools = append(plan.NodePools, decided)
		for name, decision := range decided.decisions {
			plan.Installed[name] = plan.Installed[name] || decision.Verdict != operand.Absent
		}
	}
	return plan
}

func (p Plan) installedOperands(catalogue []operand.Operand) []operand.Operand {
	var installed []operand.Operand
	for _, o := range catalogue {
		if p.Installed[o.Name] {
			installed = append(installed, o)
		}
	}
	return installed
}

func (p Plan) step(o operand.Operand, nodes []operand.NodeFacts) Step {
	decision := p.decisions[o.Name]
	switch decision.Verdict {
	case operand.Absent:
		return Step{Operand: o, Action: Remove, State: v1.OperandDisabled, Reason: decision.Reason, Message: decision.Message}
	case operand.Invalid:
		return Step{Operand: o, Action: Hold, State: v1.OperandInvalid, Reason: decision.Reason, Message: decision.Message}
	case operand.Install:
	}
	if len(o.Workloads) > 0 && !p.neededBy(o, nodes) {
		reason, message := p.notNeeded(o, nodes)
		return Step{Operand: o, Action: Remove, State: v1.OperandNotNeeded, Reason: reason, Message: message}
	}
	if blocked := p.blocked(o); blocked.Verdict != operand.Install {
		return Step{Operand: o, Action: Hold, State: v1.OperandWaiting, Reason: blocked.Reason, Message: blocked.Message}
	}
	instances, holds, err := p.instances(o)
	if err != nil {
		return Step{Operand: o, Action: Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: err.Error()}
	}
	return Step{Operand: o, Action: Apply, Instances: instances, Holds: holds}
}

// instances are those of an operand, but for the DaemonSets that node pools have of their own. holds tells that some
// nodes cannot be served as the spec asks.
func (p Plan) instances(o operand.Operand) (instances []operand.Instance, holds bool, err error) {
	if o.ServesPool != nil {
		return p.drivers(o)
	}
	instances, err = o.Instances(p.Input, p.Pools)
	return instances, false, err
}

// blocked tells whether what must be in the cluster before the operand is not there.
func (p Plan) blocked(o operand.Operand) operand.Decision {
	if waits := p.prerequisites(&o); waits.Verdict != operand.Install {
		return waits
	}
	return p.Input.Missing(&o)
}

// prerequisites tells the same of what other operands bring.
func (p Plan) prerequisites(o *operand.Operand) operand.Decision {
	for _, r := range o.Requires {
		if r.Scope == operand.Cluster && p.decisions[r.On].Verdict != operand.Install && !p.decisions[r.On].Moot {
			return operand.Refused(v1.ReasonWaitingForOperand,
				fmt.Sprintf("needs %s, which is not installed: %s", r.On, p.decisions[r.On].Message))
		}
	}
	return operand.Installed()
}

// neededBy tells whether any node is to run the operand, its deploy labels apart: a paused node
// will need it again.
func (p Plan) neededBy(o operand.Operand, nodes []operand.NodeFacts) bool {
	for _, node := range nodes {
		if node.Managed() && !node.Excluded && p.serves(o, node).Verdict == operand.Install {
			return true
		}
	}
	return false
}

// serves tells whether the operand is to run on the node, its deploy labels apart.
func (p Plan) serves(o operand.Operand, node operand.NodeFacts) operand.Decision {
	if selected := p.selects(o, node); selected.Verdict != operand.Install {
		return selected
	}
	return p.canServe(o, node)
}

// canServe tells the same whatever the node is selected for.
func (p Plan) canServe(o operand.Operand, node operand.NodeFacts) operand.Decision {
	if !o.ServesWorkload(p.Input.WorkloadOf(node)) {
		return operand.Decision{Verdict: operand.Absent}
	}
	if o.ServesPool != nil {
		if known := node.HasPool(p.inputOf(node).PoolKey()); known.Verdict != operand.Install {
			return known
		}
	}
	if o.ServesNode != nil {
		return o.ServesNode(p.inputOf(node), node)
	}
	if o.Serves == nil {
		return operand.Installed()
	}
	return o.Serves(node)
}
