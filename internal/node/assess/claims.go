package assess

import (
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// claimsOffer is the offer of a node whose GPUs only resource claims get.
const claimsOffer = "GPUs by resource claims (DRA): not validated"

// offeredByClaims returns the DRA driver that alone offers the GPUs of the node, because its device plugin is turned
// off; nil if none does.
func (in *Input) offeredByClaims() *neighbour.Neighbour {
	if !in.leavesPlugin() || readiness.Allocatable(in.Node).State == readiness.Ready {
		return nil
	}
	return in.neighbourOf(neighbour.DRADriver)
}

// neighbourOf returns the first neighbour of this kind; nil if there is none.
func (in *Input) neighbourOf(kind neighbour.Kind) *neighbour.Neighbour {
	for i := range in.Neighbours {
		if in.Neighbours[i].Kind == kind {
			return &in.Neighbours[i]
		}
	}
	return nil
}
