package plan

import (
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// StandIns returns nodes that stand for GPU nodes to come, so that DaemonSets exist before the first one; none unless
// spec.operator.keepWithoutNodes is true and none of the nodes may run operands. One stands for a node of which nothing
// is known, one for each system of the nodes, as GPU nodes often have the same, and one for each variant of the live
// DaemonSets, which thus follow the spec until there is such a node again.
func (d *Decisions) StandIns(nodes []nodeinfo.Facts, live []string) []nodeinfo.Facts {
	if !*d.Input.Spec.Operator.KeepWithoutNodes || slices.ContainsFunc(nodes, nodeinfo.Facts.TakesOperands) {
		return nil
	}
	standIns := nodeinfo.StandInsLike(nodes)
	for _, variant := range append([]string{""}, live...) {
		if node, known := nodeinfo.StandIn(variant); known {
			standIns = append(standIns, node)
		}
	}
	return standIns
}
