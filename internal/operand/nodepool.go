package operand

import (
	"fmt"
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// NodePool is a node pool.
type NodePool struct {
	v1.NodePoolSpec
	// Spec is the spec that applies to its nodes.
	Spec effective.Spec
	// SelectorDecision is Install, or Refused if no node can belong to it. It does not affect other node pools.
	SelectorDecision Decision
	// OfNVIDIADriver: it is not in the spec, but the driver of an NVIDIADriver object.
	OfNVIDIADriver bool
	// selector has the labels of its nodeSelector, as a list: each pass compares it with every node.
	selector []selectorLabel
}

// selectorLabel is a label that a node pool requires. Without mustExist, a member that loses the label stays in the
// node pool.
type selectorLabel struct {
	key, value string
	mustExist  bool
}

// NodePools returns the node pools, in their order.
func NodePools(spec effective.Spec) []NodePool {
	if len(spec.NodePools) == 0 {
		return nil
	}
	nodePools := make([]NodePool, 0, len(spec.NodePools))
	for i, nodePool := range spec.NodePools {
		found := NodePool{
			NodePoolSpec:     nodePool,
			Spec:             spec.ForNodePool(nodePool),
			SelectorDecision: checkSelector(nodePool, spec.NodePools[:i]),
		}
		for key, value := range nodePool.NodeSelector {
			found.selector = append(found.selector, selectorLabel{key, string(value), !labels.IsDiscoverable(key)})
		}
		nodePools = append(nodePools, found)
	}
	return nodePools
}

// checkSelector refuses a node pool without a nodeSelector, and one whose nodes all belong to an earlier node pool
// because its selector includes that of the earlier one.
func checkSelector(nodePool v1.NodePoolSpec, earlier []v1.NodePoolSpec) Decision {
	if len(nodePool.NodeSelector) == 0 {
		return Refuse(v1.ReasonInvalidSpec,
			fmt.Sprintf("spec.nodePools: the nodeSelector of %s is empty and selects no node: add labels of its nodes",
				nodePool.Name))
	}
	for _, before := range earlier {
		if len(before.NodeSelector) == 0 {
			continue
		}
		remedy := fmt.Sprintf("list %s first, or change one nodeSelector", nodePool.Name)
		switch {
		case maps.Equal(before.NodeSelector, nodePool.NodeSelector):
			remedy = "change one nodeSelector"
		case !includes(nodePool.NodeSelector, before.NodeSelector):
			continue
		}
		return Refuse(v1.ReasonInvalidSpec,
			fmt.Sprintf("spec.nodePools: every node that %s selects belongs to %s, which comes first: %s",
				nodePool.Name, before.Name, remedy))
	}
	return Accept()
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

// ForNodePool returns the input for the nodes of a node pool.
func (in Input) ForNodePool(nodePool NodePool) Input {
	in.Spec, in.NodePool, in.OfNVIDIADriver = nodePool.Spec, &nodePool.NodePoolSpec, nodePool.OfNVIDIADriver
	return in
}

// ForNode returns the input for a node, which one of the node pools may select.
func (in Input) ForNode(nodePools []NodePool, node nodeinfo.Facts) Input {
	if at := NodePoolOf(nodePools, node); at >= 0 {
		return in.ForNodePool(nodePools[at])
	}
	return in
}

// NodePoolOf returns the index of the first node pool that selects the node; -1 if none does.
func NodePoolOf(nodePools []NodePool, node nodeinfo.Facts) int {
	for i := range nodePools {
		if nodePools[i].selects(&node) {
			return i
		}
	}
	return -1
}

// selects reports whether the node has the labels of the node pool. A missing discovery label does not remove a node
// from its node pool, as discovery may be restarting.
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
