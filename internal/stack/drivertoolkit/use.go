package drivertoolkit

import (
	"cmp"
	"iter"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// IsUsed reports whether the driver toolkit of OpenShift builds the driver of any of these nodes.
func IsUsed(in operand.Input, nodes iter.Seq[*nodeinfo.Facts]) bool {
	for f, criteria := range coreOSNodes(in, nodes) {
		byFacts, _ := f.PoolByFacts(criteria)
		inUse, _ := f.PoolInUse(criteria)
		if byFacts.CoreOS != "" || inUse.CoreOS != "" {
			return true
		}
	}
	return false
}

// coreOSNodes yields the nodes that have, or had, Red Hat CoreOS and get a driver, with the criteria of their pool.
func coreOSNodes(
	in operand.Input, nodes iter.Seq[*nodeinfo.Facts],
) iter.Seq2[*nodeinfo.Facts, nodeinfo.PoolCriteria] {
	return func(yield func(*nodeinfo.Facts, nodeinfo.PoolCriteria) bool) {
		if !*in.Spec.Driver.Enabled {
			return
		}
		nodePools := operand.NodePools(in.Spec)
		for f := range nodes {
			if !f.IsCoreOS() && f.PoolCoreOS == "" || !f.TakesOperands() {
				continue
			}
			if !yield(f, in.ForNode(nodePools, *f).PoolCriteria()) {
				return
			}
		}
	}
}

// Use describes what the nodes need of OpenShift's driver toolkit, and what of it is missing.
type Use struct {
	// Needed: it builds the driver of a node.
	Needed bool
	// ReleaseUnknown: a node for which it builds the driver has no discovery label of its release.
	ReleaseUnknown bool
	// StreamMissing: the cluster has no ImageStream of it, or the ImageStream cannot be read.
	StreamMissing bool
	// TagMissing: the ImageStream has no tag for the release of a node.
	TagMissing bool
	// StreamBroken: such a tag has no image that pods can use, or some tag has no name.
	StreamBroken bool
}

// UseOf returns what these nodes need of the driver toolkit.
func UseOf(in operand.Input, nodes iter.Seq[*nodeinfo.Facts]) Use {
	use := Use{}
	for f, criteria := range coreOSNodes(in, nodes) {
		byFacts, _ := f.PoolByFacts(criteria)
		inUse, _ := f.PoolInUse(criteria)
		release := cmp.Or(inUse.CoreOS, byFacts.CoreOS)
		if criteria.CoreOS && f.IsCoreOS() && f.OSTree == "" {
			use.Needed, use.ReleaseUnknown = true, true
		}
		if release == "" {
			continue
		}
		use.Needed = true
		image, tagged := in.DriverToolkit[release]
		_, unnamed := in.DriverToolkit[""]
		use.StreamMissing = use.StreamMissing || in.DriverToolkit == nil
		use.TagMissing = use.TagMissing || in.DriverToolkit != nil && !tagged
		use.StreamBroken = use.StreamBroken || unnamed || tagged && image == ""
	}
	return use
}
