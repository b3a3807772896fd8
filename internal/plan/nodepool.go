package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// NodePool is what is decided of a pool of spec.nodePools.
type NodePool struct {
	operand.NodePool
	// Refused tells why its nodes do not get what the spec gives them, if they do not.
	Refused operand.Decision
	in      operand.Input
	// nodes are the GPU nodes that belong to it and may run operands; empty where the plan is for one node.
	nodes []operand.NodeFacts
	// decisions about the operands that the pool says something else of; those about the others are the plan's.
	decisions map[operand.Name]operand.Decision
}

// anySystem stands for the driver pools of a node pool where only the spec is judged: what is wrong with an image is
// wrong with that of each system.
var anySystem = []operand.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}}

// nodePool decides from the spec alone what a pool gets of the operands that it says something else of.
func (p Plan) nodePool(catalogue []operand.Operand, pool operand.NodePool) NodePool {
	found := NodePool{NodePool: pool, Refused: pool.Refused, in: p.Input.In(pool), decisions: map[operand.Name]operand.Decision{}}
	for i := range catalogue {
		o := &catalogue[i]
		if !o.VariesIn(pool.NodePoolSpec) {
			continue
		}
		decision := o.Wanted(found.in)
		if decision.Verdict == operand.Install {
			decision = found.in.Missing(o)
		}
		if decision.Verdict == operand.Install {
			if _, err := o.Instances(found.in, anySystem); err != nil {
				decision = operand.Refused(v1.ReasonInvalidSpec, err.Error())
			}
		}
		if decision.Verdict == operand.Invalid {
			decision.Message = fmt.Sprintf("node pool %s: %s", pool.Name, decision.Message)
			if found.Refused.Verdict == operand.Install && p.decisions[o.Name].Verdict != operand.Invalid {
				found.Refused = decision
			}
		}
		found.decisions[o.Name] = decision
	}
	return found
}

// poolOf is the pool that the node belongs to, nil for none.
func (p Plan) poolOf(node operand.NodeFacts) *NodePool {
	if len(p.NodePools) == 0 {
		return nil
	}
	if at := operand.PoolOf(p.selecting, node); at >= 0 {
		return &p.NodePools[at]
	}
	return nil
}

// inputFor is the input for the nodes of a pool, or of none.
func (p Plan) inputFor(pool *NodePool) operand.Input {
	if pool == nil {
		return p.Input
	}
	return pool.in
}

// InputFor is the input for the instances of the node pool of that name, or of none.
func (p Plan) InputFor(name string) operand.Input {
	for i := range p.NodePools {
		if p.NodePools[i].Name == name {
			return p.NodePools[i].in
		}
	}
	return p.Input
}

// inputOf is the input for a node.
func (p Plan) inputOf(node operand.NodeFacts) operand.Input { return p.inputFor(p.poolOf(node)) }

// decision about an operand for the nodes of a pool, or of none.
func (p Plan) decision(o *operand.Operand, pool *NodePool) operand.Decision {
	if pool != nil {
		if own, varies := pool.decisions[o.Name]; varies {
			return own
		}
	}
	return p.decisions[o.Name]
}

// ready tells the same, and whether all is there that the operand needs of the cluster.
func (p Plan) ready(o *operand.Operand, pool *NodePool) operand.Decision {
	decision := p.decision(o, pool)
	if decision.Verdict != operand.Install {
		return decision
	}
	if pool != nil && o.VariesIn(pool.NodePoolSpec) {
		// What the pool's spec names is there, or it would have been refused.
		return p.prerequisites(o)
	}
	return p.blocked(*o)
}

// inPools adds to a step what the pools say of its operand. Nothing in the instances for nodes of no pool depends on
// the pools, so that one that comes or goes changes no object but its own.
func (p Plan) inPools(step Step) Step {
	o := &step.Operand
	if step.Action == Hold {
		return step
	}
	for i := range p.NodePools {
		pool := &p.NodePools[i]
		if !o.VariesIn(pool.NodePoolSpec) {
			continue
		}
		members := p.members(o, pool)
		switch decision := p.ready(o, pool); {
		case decision.Verdict == operand.Invalid && step.Action == Remove && len(members) > 0:
			return Step{Operand: *o, Action: Hold, State: v1.OperandInvalid, Reason: decision.Reason, Message: decision.Message}
		case decision.Verdict == operand.Invalid:
			step.Holds = true
		case decision.Verdict == operand.Install && len(members) > 0 && o.ServesPool == nil:
			step = step.with(ofPool(o, pool, members))
		}
	}
	return step
}

// with is the step with more instances to apply.
func (s Step) with(more []operand.Instance) Step {
	if s.Action == Remove {
		s = Step{Operand: s.Operand, Action: Apply}
	}
	s.Instances = append(s.Instances, more...)
	return s
}

// gather finds the nodes of each pool.
func (p Plan) gather(nodes []operand.NodeFacts) {
	for _, node := range nodes {
		if pool := p.poolOf(node); pool != nil && node.Managed() && !node.Excluded {
			pool.nodes = append(pool.nodes, node)
		}
	}
}

// members are the nodes of the pool that are to run the operand.
func (p Plan) members(o *operand.Operand, pool *NodePool) []operand.NodeFacts {
	var members []operand.NodeFacts
	for _, node := range pool.nodes {
		if p.serves(*o, node).Verdict == operand.Install {
			members = append(members, node)
		}
	}
	return members
}

// ofPool are the instances for the nodes of a pool. Each has the name of the pool, which nothing else ends in.
func ofPool(o *operand.Operand, pool *NodePool, members []operand.NodeFacts) []operand.Instance {
	instances, err := o.Instances(pool.in, nil)
	if err != nil {
		return nil // The pool is refused for it.
	}
	layouts := operand.Layouts(members)
	instances = slices.DeleteFunc(instances, func(i operand.Instance) bool {
		return i.Layout != "" && !slices.ContainsFunc(layouts, func(l operand.Layout) bool { return l.Name == i.Layout })
	})
	for i := range instances {
		instances[i].NodePool = pool.Name
		instances[i].Suffix += "-pool-" + pool.Name
	}
	return instances
}

// drivers are the instances for all driver pools that can be served as the spec asks, and whether some cannot.
func (p Plan) drivers(o operand.Operand) (instances []operand.Instance, holds bool, err error) {
	served := map[string][]operand.Pool{}
	for _, pool := range p.Pools {
		nodePool, known := p.named(&o, pool.NodePool)
		if !known || p.ready(&o, nodePool).Verdict != operand.Install || o.ServesPool(p.inputFor(nodePool), pool).Verdict != operand.Install {
			holds = true
			continue
		}
		served[pool.NodePool] = append(served[pool.NodePool], pool)
	}
	if instances, err = o.Instances(p.Input, served[""]); err != nil {
		return nil, holds, err
	}
	for i := range p.NodePools {
		pool := &p.NodePools[i]
		if len(served[pool.Name]) == 0 {
			continue
		}
		more, err := o.Instances(pool.in, served[pool.Name])
		if err != nil {
			return nil, holds, fmt.Errorf("node pool %s: %w", pool.Name, err)
		}
		for j := range more {
			more[j].NodePool = pool.Name
		}
		instances = append(instances, more...)
	}
	return instances, holds, nil
}

// named is the node pool of that name, if it says something of the operand; nil for none.
func (p Plan) named(o *operand.Operand, name string) (pool *NodePool, known bool) {
	if name == "" {
		return nil, true
	}
	for i := range p.NodePools {
		if p.NodePools[i].Name == name && o.VariesIn(p.NodePools[i].NodePoolSpec) {
			return &p.NodePools[i], true
		}
	}
	return nil, false
}

// poolLabels are the labels by which the DaemonSets of pools find their nodes. A label with an empty value is to
// go. Where the pool cannot have what it asks for, the node keeps what it has.
func (p Plan) poolLabels(catalogue []operand.Operand, pool *NodePool) map[string]string {
	wanted := map[string]string{labels.NodePool: ""}
	if pool != nil {
		wanted[labels.NodePool] = pool.Name
	}
	for i := range catalogue {
		o := &catalogue[i]
		key := o.NodePoolLabel()
		switch {
		case key == "":
		case pool == nil || !o.VariesIn(pool.NodePoolSpec):
			wanted[key] = ""
		case p.decision(o, pool).Verdict != operand.Invalid:
			wanted[key] = pool.Name
		}
	}
	return wanted
}

// refusesDriver tells whether the pool asks for a driver that cannot be.
func (p Plan) refusesDriver(catalogue []operand.Operand, pool *NodePool) bool {
	return pool != nil && slices.ContainsFunc(catalogue, func(o operand.Operand) bool {
		return o.ServesPool != nil && o.VariesIn(pool.NodePoolSpec) && p.decision(&o, pool).Verdict == operand.Invalid
	})
}
