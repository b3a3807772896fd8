package cachefilter

import corev1 "k8s.io/api/core/v1"

// NodeTrimmer trims Nodes before they enter a cache. A Node that still has the labels that are known of it shares their
// map: most of a Node is labels, 9 kB for a hundred, which most events do not change. That is safe because neither
// cached objects nor facts are ever modified.
type NodeTrimmer struct {
	known func(node string) map[string]string
}

// NewNodeTrimmer returns a NodeTrimmer. known returns the labels that are known of a node, nil for none; it is called
// concurrently.
func NewNodeTrimmer(known func(node string) map[string]string) *NodeTrimmer {
	return &NodeTrimmer{known}
}

// Node is TrimmedNode as the transform of a cache. It returns other objects unchanged.
func (t *NodeTrimmer) Node(object any) (any, error) {
	if node, isNode := object.(*corev1.Node); isNode {
		return trimmedNode(node, t.known(node.Name)), nil
	}
	return object, nil
}
