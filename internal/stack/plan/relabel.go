package plan

import (
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// Relabel replaces the driver pool, in place, of nodes that are labelled with one that has no DaemonSet, as their
// labels are of an earlier installation: the node controller labels them with the pool of their facts next, unless
// their driver is refused. It does so node by node. That they count as labelled gives all pools their DaemonSets in the
// same pass, with names that do not depend on its order. variants are those of the live DaemonSets.
func (d *Decisions) Relabel(nodes []nodeinfo.Facts, variants []string) []nodeinfo.Facts {
	for i := range nodes {
		node := &nodes[i]
		if node.Pool == "" || slices.Contains(variants, node.Pool) || d.refusesDriver(*node) {
			continue
		}
		if pool, complete := node.PoolByFacts(d.driverInput(*node).PoolCriteria()); complete {
			node.Pool, node.PoolKernel, node.PoolCoreOS = pool.Name, pool.Kernel, pool.CoreOS
			node.PoolNodePool = pool.NodePool
		}
	}
	return nodes
}
