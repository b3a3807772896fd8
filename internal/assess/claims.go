package assess

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/neighbour"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// claimsOffer is the offer of a node whose GPUs only resource claims get.
const claimsOffer = "GPUs by resource claims (DRA): not validated"

// claimsNote comes before the workload of the DRA driver in the message of such a node.
const claimsNote = "a DRA driver offers them by resource claims, which the operator has not validated: "

// OffersByClaims reports whether only resource claims get the GPUs of a node, by its condition nvidia.com/GPUReady; nil
// for none.
func OffersByClaims(condition *corev1.NodeCondition) bool {
	return condition != nil && strings.Contains(condition.Message, claimsNote)
}

// offeredByClaims returns the workload of the DRA driver by which alone the GPUs of the node are offered, because its
// device plugin is turned off; empty if that is not so. Until the neighbours are known it is as the condition shows.
func (in *Input) offeredByClaims() string {
	if !in.leavesPlugin() || readiness.Allocatable(in.Node).State == readiness.Ready {
		return ""
	}
	if in.Shown != nil {
		_, workload, _ := strings.Cut(in.Shown.Message, claimsNote)
		workload, _, _ = strings.Cut(workload, ";")
		return workload
	}
	for _, other := range in.Neighbours {
		if other.Kind == neighbour.DRADriver {
			return other.Workload
		}
	}
	return ""
}
