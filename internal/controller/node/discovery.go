package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// discoveryGrace is how long a GPU node may be without a GPU in its discovery labels before its
// operands are taken off it. A restart of node discovery takes its labels away for seconds to
// minutes; the driver must not go with them.
const discoveryGrace = 10 * time.Minute

// discovery watches over a node that was found to have GPUs and is no longer. It tells whether the
// node was given up, or after how long to look again. A node that has lost all its discovery labels
// is never given up: that is discovery's failure, not the node's. Nor is one whose kubelet still
// advertises GPUs: the labels are wrong then.
func (r *Reconciler) discovery(ctx context.Context, node *corev1.Node, facts operand.NodeFacts) (gone bool, wait time.Duration, err error) {
	since, noted := node.Annotations[labels.DiscoveryLostSince]
	if facts.HasGPU || !facts.Discovered || readiness.Allocatable(node).State == readiness.Ready {
		if noted {
			return false, 0, r.patchMetadata(ctx, node, nil, map[string]*string{labels.DiscoveryLostSince: nil})
		}
		return false, 0, nil
	}
	start, err := time.Parse(time.RFC3339, since)
	if err != nil || start.After(r.Clock.Now()) {
		// Absent, or not ours to believe: the grace period starts now.
		now := r.Clock.Now().UTC().Format(time.RFC3339)
		log.FromContext(ctx).Info("GPU is gone from the discovery labels, keeping the operands for now", "grace", discoveryGrace)
		return false, discoveryGrace, r.patchMetadata(ctx, node, nil, map[string]*string{labels.DiscoveryLostSince: &now})
	}
	if left := discoveryGrace - r.Clock.Since(start); left > 0 {
		return false, left, nil
	}
	log.FromContext(ctx).Info("Giving up a node that has no GPU any more")
	return true, 0, r.release(ctx, node, labels.False)
}
