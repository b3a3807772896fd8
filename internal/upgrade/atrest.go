package upgrade

// AtRest reports whether a plan has nothing to do for the node and nothing to report, now and at any later time,
// whatever the other nodes do. While all nodes are at rest and no slots are granted, a plan has only the number of
// nodes that are UpToDate, and need not be computed. The Slots and the Policy of the node are those of the cluster.
func (c *Cluster) AtRest(n *Node) bool {
	if n.outdated() || n.MIG.Wanted != "" || n.MIG.Recorded {
		return false
	}
	if _, holds := c.held(n); holds {
		return false
	}
	nothing := turn{}
	return c.driverPlan(n).turn() == nothing && c.layout(n, refusal{}) == nothing
}

// UpToDate reports whether the operator installs the driver on the node, and its pod is the one that the node needs.
func (n *Node) UpToDate() bool { return n.Installs && n.inSync() }
