package plan

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// InputForNodePool returns the input for an operand's instances of the named node pool; for an empty or unknown name
// that of nodes of no node pool.
func (p Plan) InputForNodePool(o *operand.Operand, name string) operand.Input {
	pools := p.poolsOf(o)
	for i := range pools {
		if pools[i].Name == name {
			return p.instancesInput(&pools[i])
		}
	}
	return p.Input
}

// instancesInput returns the input of a node pool with the facts about the cluster that instances need.
func (p Plan) instancesInput(nodePool *NodePool) operand.Input {
	in := nodePool.in
	in.Layouts, in.Optional = p.Input.Layouts, p.Input.Optional
	return in
}

// withNodePools adds to a step what the node pools specify for its operand. The instances for nodes of no node pool do
// not depend on node pools, so that a node pool which is added or removed changes only its own objects.
func (p Plan) withNodePools(step Step) Step {
	o := &step.Operand
	if step.Action == Hold {
		return step
	}
	for i := range p.NodePools {
		nodePool := &p.NodePools[i]
		if !o.VariesIn(nodePool.NodePoolSpec) {
			continue
		}
		members := p.nodePoolMembers(o, nodePool)
		switch decision := p.decisionInCluster(o, nodePool); {
		case decision.Choice == operand.Refused && step.Action == Remove && len(members) > 0:
			return refusedStep(*o, decision.Reason, decision.Message)
		case decision.Choice == operand.Refused:
			step.KeepUnrendered = true
		case decision.Choice == operand.Install && len(members) > 0 && !o.PerPool:
			instances, err := p.nodePoolInstances(o, nodePool, members)
			if err != nil {
				return refusedStep(*o, v1.ReasonInvalidSpec, err.Error())
			}
			step = step.with(instances)
		}
	}
	return step
}

// with returns the step with more instances to apply.
func (s Step) with(more []operand.Instance) Step {
	if s.Action == Remove {
		s = Step{Operand: s.Operand, Action: Apply}
	}
	s.Instances = append(s.Instances, more...)
	return s
}

// collectNodePoolNodes fills nodePoolNodes.
func (p Plan) collectNodePoolNodes(nodes []nodeinfo.Facts) {
	for _, node := range nodes {
		if nodePool := p.nodePoolOf(node); nodePool != nil && node.TakesOperands() {
			p.nodePoolNodes[nodePool.Name] = append(p.nodePoolNodes[nodePool.Name], node)
		}
	}
}

// nodePoolMembers returns the nodes of the node pool that are to run the operand.
func (p Plan) nodePoolMembers(o *operand.Operand, nodePool *NodePool) []nodeinfo.Facts {
	var members []nodeinfo.Facts
	for _, node := range p.nodePoolNodes[nodePool.Name] {
		if p.checkNode(*o, node).Choice == operand.Install {
			members = append(members, node)
		}
	}
	return members
}

// nodePoolInstances returns the instances for the nodes of a node pool, with -pool- and the node pool's name as a
// unique suffix. The suffix says -pool- for compatibility: live DaemonSets have it. It fails if the spec conflicts with
// the layouts of the nodes, which Decide cannot check.
func (p Plan) nodePoolInstances(
	o *operand.Operand,
	nodePool *NodePool,
	members []nodeinfo.Facts,
) ([]operand.Instance, error) {
	instances, err := o.Instances(p.instancesInput(nodePool), nil)
	if err != nil {
		return nil, fmt.Errorf("node pool %s: %w", nodePool.Name, err)
	}
	layouts := nodeinfo.Layouts(members)
	instances = slices.DeleteFunc(instances, func(i operand.Instance) bool {
		return i.Layout != "" && !slices.ContainsFunc(layouts, func(l nodeinfo.Layout) bool { return l.Name == i.Layout })
	})
	for i := range instances {
		instances[i].NodePool = nodePool.Name
		instances[i].Suffix += "-pool-" + nodePool.Name
	}
	return instances, nil
}

// drivers returns the instances for all driver pools that can be served as specified, and whether some cannot.
func (p Plan) drivers(o operand.Operand) (instances []operand.Instance, keep bool, err error) {
	served := map[string][]nodeinfo.Pool{}
	for _, pool := range p.Pools {
		nodePool, known := p.nodePoolNamed(&o, pool.NodePool)
		if !known || p.decisionInCluster(&o, nodePool).Choice != operand.Install ||
			checkPool(o, p.inputForNodePool(nodePool), pool).Choice != operand.Install {
			keep = true
			continue
		}
		served[pool.NodePool] = append(served[pool.NodePool], pool)
	}
	if instances, err = o.Instances(p.Input, served[""]); err != nil {
		return nil, keep, err
	}
	pools := p.poolsOf(&o)
	for i := range pools {
		nodePool := &pools[i]
		if len(served[nodePool.Name]) == 0 {
			continue
		}
		more, err := o.Instances(p.instancesInput(nodePool), served[nodePool.Name])
		if err != nil {
			return nil, keep, fmt.Errorf("node pool %s: %w", nodePool.Name, err)
		}
		for j := range more {
			more[j].NodePool = nodePool.Name
		}
		instances = append(instances, more...)
	}
	return instances, keep, nil
}

// nodePoolNamed returns the named node pool if it overrides the operand; nil for an empty name. If NVIDIADriver
// objects declare the drivers, one that is not refused must have the driver of the spec for that.
func (p Plan) nodePoolNamed(o *operand.Operand, name string) (nodePool *NodePool, known bool) {
	if name == "" {
		return nil, !p.Input.UsesNVIDIADrivers() || slices.ContainsFunc(p.driverObjects, func(driver NodePool) bool {
			return driver.Decision.Choice != operand.Refused && !o.VariesIn(driver.NodePoolSpec)
		})
	}
	pools := p.poolsOf(o)
	for i := range pools {
		if pools[i].Name == name && o.VariesIn(pools[i].NodePoolSpec) {
			return &pools[i], true
		}
	}
	return nil, false
}
