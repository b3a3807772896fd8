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
	// Spec is the spec that applies to its nodes.
	Spec effective.Spec
	// Refused is the reason why no node can belong to it. It does not affect other pools.
	Refused Decision
	// selector has the labels of its nodeSelector, as a list: each pass compares it with every node.
	selector []selectorLabel
}

// selectorLabel is a label that a pool requires. Without mustExist, a member that loses the label stays in the pool.
type selectorLabel struct {
	key, value string
	mustExist  bool
}

// NodePools returns the pools of spec.nodePools, in their order.
func NodePools(spec effective.Spec) []NodePool {
	if len(spec.NodePools) == 0 {
		return nil
	}
	pools := make([]NodePool, 0, len(spec.NodePools))
	for i, pool := range spec.NodePools {
		found := NodePool{NodePoolSpec: pool, Spec: spec.ForPool(pool), Refused: checkSelector(pool, spec.NodePools[:i])}
		for key, value := range pool.NodeSelector {
			found.selector = append(found.selector, selectorLabel{key, string(value), !labels.IsDiscoverable(key)})
		}
		pools = append(pools, found)
	}
	return pools
}

// checkSelector refuses a pool without a nodeSelector, and one whose nodes all belong to an earlier pool because its
// selector includes that of the earlier one.
func checkSelector(pool v1.NodePoolSpec, earlier []v1.NodePoolSpec) Decision {
	if len(pool.NodeSelector) == 0 {
		return Refused(v1.ReasonInvalidSpec,
			fmt.Sprintf("spec.nodePools: the nodeSelector of %s is empty and selects no node: add labels of its nodes", pool.Name))
	}
	for _, before := range earlier {
		if len(before.NodeSelector) == 0 {
			continue
		}
		remedy := fmt.Sprintf("list %s first, or change one nodeSelector", pool.Name)
		switch {
		case maps.Equal(before.NodeSelector, pool.NodeSelector):
			remedy = "change one nodeSelector"
		case !includes(pool.NodeSelector, before.NodeSelector):
			continue
		}
		return Refused(v1.ReasonInvalidSpec,
			fmt.Sprintf("spec.nodePools: every node that %s selects belongs to %s, which comes first: %s",
				pool.Name, before.Name, remedy))
	}
	return Installed()
}

// includes reports whether a selector has all labels of another one.
func includes(selector, of v1.NodePoolSelector) bool {
	for key, value := range of {
		if has, exists := selector[key]; !exists || has != value {
			return false
		}
	}
	return true
}

// ForPool returns the input for the nodes of a pool.
func (in Input) ForPool(pool NodePool) Input {
	in.Spec, in.NodePool = pool.Spec, &pool.NodePoolSpec
	return in
}

// forNode returns the input for a node, which one of the pools may select.
func (in Input) forNode(pools []NodePool, node nodeinfo.Facts) Input {
	if at := PoolOf(pools, node); at >= 0 {
		return in.ForPool(pools[at])
	}
	return in
}

// PoolOf returns the index of the first pool that selects the node; -1 if none does.
func PoolOf(pools []NodePool, node nodeinfo.Facts) int {
	for i := range pools {
		if pools[i].selects(&node) {
			return i
		}
	}
	return -1
}

// selects reports whether the node has the labels of the pool. A missing discovery label does not remove a node from
// its pool, as discovery may be restarting.
func (p *NodePool) selects(node *nodeinfo.Facts) bool {
	for _, label := range p.selector {
		value, exists := node.Labels[label.key]
		lost := !exists && !label.mustExist && node.NodePool == p.Name
		if !lost && (!exists || value != label.value) {
			return false
		}
	}
	return len(p.selector) > 0
}
