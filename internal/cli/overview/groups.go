package overview

import (
	"cmp"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Group is the number of nodes that agree in product and state.
type Group struct {
	Product string
	Ready   Readiness
	Stage   v1.Stage
	Reason  string
	// Nodes of the group, and their GPUs.
	Nodes int
	GPUs  GPUs
}

// Groups returns the groups of nodes: those that are not ready first, then the largest.
func Groups(nodes []Node) []Group {
	var groups []Group
	for i := range nodes {
		n := &nodes[i]
		at := slices.IndexFunc(groups, func(g Group) bool {
			return g.Product == n.Product && g.Ready == n.Ready && g.Stage == n.Stage && g.Reason == n.Reason
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, Group{Product: n.Product, Ready: n.Ready, Stage: n.Stage, Reason: n.Reason})
		}
		g := &groups[at]
		g.Nodes++
		g.GPUs.Total += n.GPUs.Total
		g.GPUs.Usable += n.GPUs.Usable
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(rank[a.Ready], rank[b.Ready]), cmp.Compare(b.Nodes, a.Nodes),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Product, b.Product), cmp.Compare(a.Stage, b.Stage))
	})
	return groups
}
