package assess

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// claimsOffer is the offer of a node whose GPUs only resource claims get.
const claimsOffer = "GPUs by resource claims (DRA): not validated"

// claimsNote comes before the workload of the DRA driver in the message of such a node.
const claimsNote = "a DRA driver offers them by resource claims, which the operator has not validated: "

// OffersByClaims reports whether only resource claims get the GPUs of a node, by its condition nvidia.com/GPUReady: the
// condition says so, or the node is ready without a GPU at its kubelet, and another reason takes the place of the note.
func OffersByClaims(node *corev1.Node) bool {
	condition := GPUReadyCondition(node)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return false
	}
	return strings.Contains(condition.Message, claimsNote) ||
		condition.Reason != v1.ReasonGPUReady && readiness.Allocatable(node).State != readiness.Ready
}

// offeredByClaims reports whether a DRA driver alone offers the GPUs of the node, because its device plugin is turned
// off, and returns the workload of that driver. Until the neighbours are known, a node without other GPUs that shows as
// ready is taken for one; the workload is empty where its condition does not name it.
func (in *Input) offeredByClaims() (workload string, offered bool) {
	if !in.leavesPlugin() || readiness.Allocatable(in.Node).State == readiness.Ready {
		return "", false
	}
	if in.Shown != nil {
		_, workload, _ = strings.Cut(in.Shown.Message, claimsNote)
		workload, _, _ = strings.Cut(workload, ";")
		return workload, in.Shown.Status == corev1.ConditionTrue
	}
	for _, other := range in.Neighbours {
		if other.Kind == neighbour.DRADriver {
			return other.Workload, true
		}
	}
	return "", false
}
