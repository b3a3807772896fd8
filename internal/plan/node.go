package plan

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Expectation is what a node needs of an operand.
type Expectation int

const (
	// Expected: a pod of the operand must be ready on the node.
	Expected Expectation = iota
	// HostProvides: the host has what the operand would install.
	HostProvides
	// OptedOut: a user keeps the operand off the node, by its label or by a nodeSelector of the spec. Later stages may
	// still depend on it.
	OptedOut
	// PausedByLabel: the node's deploy label keeps the operand off it for now.
	PausedByLabel
	// Refused: the operand cannot run on this node, or not as specified.
	Refused
)

// OperandOnNode is one operand's part in the stages of a node.
type OperandOnNode struct {
	Stage       v1.Stage
	Operand     operand.Name
	Expectation Expectation
	// Reason and Message explain OptedOut, PausedByLabel and Refused.
	Reason, Message string
	// Injector is the injector, which must have been ready on the node before pods of this operand are created there.
	// Empty for none.
	Injector operand.Name
}

// RunningPods is the state of a node's pods that its labels depend on.
type RunningPods struct {
	// Driver: a driver pod is running, so the node's pool must not change. That would delete the pod, which only a driver
	// upgrade may do.
	Driver bool
	// Injector: the injector is ready.
	Injector bool
}

// NodePlan is the plan for one GPU node.
type NodePlan struct {
	Facts nodeinfo.Facts
	// NodePool is the node pool that it belongs to, empty for none.
	NodePool string
	// Pool is the driver pool by its facts; without a name if a fact is missing.
	Pool nodeinfo.Pool
	// Essential in their order, one per operand.
	Essential []OperandOnNode
	// Auxiliary are the operands that no stage depends on.
	Auxiliary []OperandOnNode
	// Refused is the reason why nothing is installed on the node, if so.
	Refused operand.Decision
	// Unselected describes the nodeSelector that excludes all stages from the node; empty if none does.
	Unselected string
	// RetainedDriver describes how to remove the driver that the node retains although no nodeSelector selects it; empty
	// if there is none.
	RetainedDriver string
	// MissingLabels describes the missing discovery labels; empty for none.
	MissingLabels string
	// NeedsAllocatable: the kubelet must advertise GPUs.
	NeedsAllocatable bool
	// Spec that applies to the node.
	Spec effective.Spec
}

// ForNode plans one managed node.
func (d *Decisions) ForNode(facts nodeinfo.Facts) NodePlan {
	nodePool := d.nodePoolOf(facts)
	in := d.inputForNodePool(nodePool)
	node := NodePlan{
		Facts:         facts,
		Refused:       d.Input.CheckWorkloadSupported(facts),
		MissingLabels: d.DescribeMissingLabels(facts),
		Spec:          in.Spec,
	}
	if nodePool != nil {
		node.NodePool = nodePool.Name
	}
	if pool, complete := facts.PoolByFacts(in.PoolCriteria()); complete {
		node.Pool = pool
	}
	for _, stage := range v1.Stages() {
		node.Essential = append(node.Essential, d.operandsOfStage(stage, facts)...)
	}
	node.Auxiliary = d.operandsOfStage("", facts)
	d.setInjector(&node)
	node.RetainedDriver = d.retainedDriver(facts)
	node.evaluateSelection()
	if node.Refused.Reason == v1.ReasonNotSelected {
		node.Unselected = node.Refused.Message
	}
	return node
}

// setInjector sets After of the injected operands.
func (d *Decisions) setInjector(n *NodePlan) {
	injector, _ := d.injectorOf(n.Essential)
	if injector == "" {
		return
	}
	for _, stages := range [][]OperandOnNode{n.Essential, n.Auxiliary} {
		for i := range stages {
			if o, known := d.Catalogue.Find(stages[i].Operand); known && o.NeedsInjection {
				stages[i].Injector = injector
			}
		}
	}
}

// injectorOf returns the injector among the stages; empty if the host provides it, or if it cannot or must not run.
// paused reports whether its deploy label keeps it off for now.
func (d *Decisions) injectorOf(stages []OperandOnNode) (name operand.Name, paused bool) {
	for _, stage := range stages {
		if o, known := d.Catalogue.Find(stage.Operand); known && o.IsInjector &&
			(stage.Expectation == Expected || stage.Expectation == PausedByLabel) {
			return stage.Operand, stage.Expectation == PausedByLabel
		}
	}
	return "", false
}

// operandsOfStage returns the operands of one stage that apply to the node.
func (d *Decisions) operandsOfStage(stage v1.Stage, facts nodeinfo.Facts) []OperandOnNode {
	var stages []OperandOnNode
	nodePool := d.nodePoolOf(facts)
	for _, o := range d.Catalogue {
		decision := d.decision(&o, nodePool)
		if o.Stage != stage || !o.ServesWorkload(d.Input.WorkloadOf(facts)) || decision.Choice == operand.Absent {
			continue
		}
		possible := d.checkFacts(o, facts)
		if possible.Choice == operand.Absent {
			continue
		}
		if selected := d.checkNodeSelector(o, facts); selected.Choice != operand.Install {
			stages = append(stages, operandOnNode(o, selected, facts))
			continue
		}
		if decision.Choice == operand.Install {
			decision = d.decisionInCluster(&o, nodePool)
		}
		if decision.Choice == operand.Install {
			decision = possible
		}
		if decision.Choice == operand.Install {
			decision = d.checkExpectedPool(o, facts)
		}
		stages = append(stages, operandOnNode(o, decision, facts))
	}
	return stages
}

// checkExpectedPool decides by the expected pool of the node. The spec may no longer have the pool that the node is
// labelled with; the node is then to be moved, which is not a failure.
func (d *Decisions) checkExpectedPool(o operand.Operand, facts nodeinfo.Facts) operand.Decision {
	if !o.PerPool {
		return operand.Accept()
	}
	in := d.inputForNode(facts)
	pool, complete := facts.PoolByFacts(in.PoolCriteria())
	if !complete {
		return operand.Accept()
	}
	return checkPool(o, in, pool)
}

// checkPool decides whether the operand can serve the nodes of a driver pool.
func checkPool(o operand.Operand, in operand.Input, pool nodeinfo.Pool) operand.Decision {
	if o.ServesPool == nil {
		return operand.Accept()
	}
	return o.ServesPool(in, pool)
}

func operandOnNode(o operand.Operand, decision operand.Decision, facts nodeinfo.Facts) OperandOnNode {
	r := OperandOnNode{Stage: o.Stage, Operand: o.Name}
	name, value := decidingLabel(o, facts)
	if value == labels.DeployPreInstalled {
		r.Expectation = HostProvides
		return r
	}
	if decision.Reason == v1.ReasonNotSelected {
		r.Expectation, r.Reason, r.Message = OptedOut, decision.Reason, decision.Message
		return r
	}
	if decision.Choice != operand.Install {
		r.Expectation, r.Reason, r.Message = Refused, decision.Reason, decision.Message
		return r
	}
	if value == "" || value == labels.True {
		return r
	}
	r.Expectation, r.Reason = PausedByLabel, v1.ReasonOperandPaused
	if value == labels.False {
		r.Expectation = OptedOut
	}
	r.Message = fmt.Sprintf("label %s is %q", name.DeployLabel(), value)
	return r
}

// decidingLabel returns the operand whose deploy label decides whether this one runs on the node, and the label's
// value: the operand itself, or the one that it follows if that label keeps both off.
func decidingLabel(o operand.Operand, facts nodeinfo.Facts) (operand.Name, string) {
	if followed := facts.Deploy[string(o.Follows)]; followed != "" && followed != labels.True {
		return o.Follows, followed
	}
	return o.Name, facts.Deploy[string(o.Name)]
}
