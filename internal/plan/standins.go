package plan

import (
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// WithStandIns returns the nodes. If none of them may run operands and spec.operator.keepWithoutNodes is true, it adds
// nodes that stand for those to come, so that DaemonSets exist before the first node: one of which nothing is known,
// and one for each variant of the live DaemonSets, which thus follow the spec until there is such a node again.
func (d *Decisions) WithStandIns(nodes []nodeinfo.Facts, live []string) []nodeinfo.Facts {
	mayRun := func(node nodeinfo.Facts) bool { return node.Managed() && !node.ExcludedByLabel }
	if !*d.Input.Spec.Operator.KeepWithoutNodes || slices.ContainsFunc(nodes, mayRun) {
		return nodes
	}
	all := slices.Clone(nodes)
	for _, variant := range append([]string{""}, live...) {
		if node, known := nodeinfo.StandIn(variant); known {
			all = append(all, node)
		}
	}
	return all
}
