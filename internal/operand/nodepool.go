package operand

import (
	"fmt"
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// NodePool is a pool of spec.nodePools.
type NodePool struct {
	v1.NodePoolSpec
	// Spec is what holds for its nodes.
	Spec effective.Spec
	// Refused tells why no node can belong to it; the others are not touched by that.
	Refused Decision
	// asks are the labels of its nodeSelector; a pass compares them with those of each node.
	asks []asked
}

// asked is a label that a pool asks for. lasting: that it is missing says something of the node.
type asked struct {
	key, value string
	lasting    bool
}

// NodePools are those of the spec, in their order.
func NodePools(spec effective.Spec) []NodePool {
	if len(spec.NodePools) == 0 {
		return nil
	}
	pools := make([]NodePool, 0, len(spec.NodePools))
	for i, pool := range spec.NodePools {
		found := NodePool{NodePoolSpec: pool, Spec: spec.ForPool(pool), Refused: hidden(pool, spec.NodePools[:i])}
		for key, value := range pool.NodeSelector {
			found.asks = append(found.asks, asked{key, string(value), !labels.IsDiscoverable(key)})
		}
		pools = append(pools, found)
	}
	return pools
}

// hidden refuses a pool that asks for no label, and one all of whose nodes belong to an earlier one: each label that one asks for is asked for
// here, too.
func hidden(pool v1.NodePoolSpec, earlier []v1.NodePoolSpec) Decision {
	if len(pool.NodeSelector) == 0 {
		return Refused(v1.ReasonInvalidSpec, fmt.Sprintf("spec.nodePools: %s selects no node: name labels of its nodes in nodeSelector", pool.Name))
	}
	for _, before := range earlier {
		if len(before.NodeSelector) == 0 {
			continue
		}
		remedy := fmt.Sprintf("put %s first, or give one of the two other labels", pool.Name)
		switch {
		case maps.Equal(before.NodeSelector, pool.NodeSelector):
			remedy = "give one of the two other labels"
		case !asksFor(pool.NodeSelector, before.NodeSelector):
			continue
		}
		return Refused(v1.ReasonInvalidSpec, fmt.Sprintf(
			"spec.nodePools: every node that %s selects belongs to %s, which comes first: %s", pool.Name, before.Name, remedy))
	}
	return Installed()
}

// asksFor tells whether a selector asks for all that another one asks for.
func asksFor(selector, of v1.NodePoolSelector) bool {
	for key, value := range of {
		if has, there := selector[key]; !there || has != value {
			return false
		}
	}
	return true
}

// ForPool is the input for the nodes of a pool.
func (in Input) ForPool(pool NodePool) Input {
	in.Spec, in.NodePool = pool.Spec, &pool.NodePoolSpec
	return in
}

// of is the input for a node, which one of these pools may select.
func (in Input) of(pools []NodePool, node nodeinfo.Facts) Input {
	if at := PoolOf(pools, node); at >= 0 {
		return in.ForPool(pools[at])
	}
	return in
}

// PoolOf is the index of the pool that the node belongs to, the first one that selects it; -1 if none does.
func PoolOf(pools []NodePool, node nodeinfo.Facts) int {
	for i := range pools {
		if pools[i].has(&node) {
			return i
		}
	}
	return -1
}

// has tells whether the node has the labels of the pool. A label that discovery writes and that is missing says
// nothing: discovery may be restarting, and that takes no node out of its pool.
func (p *NodePool) has(node *nodeinfo.Facts) bool {
	for _, asked := range p.asks {
		value, there := node.Labels[asked.key]
		lost := !there && !asked.lasting && node.NodePool == p.Name
		if !lost && (!there || value != asked.value) {
			return false
		}
	}
	return len(p.asks) > 0
}
