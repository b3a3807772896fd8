package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// startup keeps the start-up taints of the node as the verdict on it asks, in one write or none.
func (s *scope) startup(ctx context.Context, spec v1.NodeStartupSpec) error {
	wish, wait := s.taintWish(spec)
	s.sooner(wait)
	return s.writeTaints(ctx, spec, wish)
}

// taintWish is what the verdict means for the taints, and after how long it means something else. Where the
// kubelet does not answer, Kubernetes itself taints the node.
func (s *scope) taintWish(spec v1.NodeStartupSpec) (plan.DesiredTaint, time.Duration) {
	verdict := &s.entry.Latest
	switch {
	case verdict.Usable:
		return plan.RemoveTaints, 0
	case verdict.Excluded:
		return plan.ReleaseTaints, 0
	case spec.OnFailure != v1.OnFailureTaint || verdict.State != readiness.Failed || isSilent(verdict.Reason):
		return plan.KeepTaints, 0
	}
	if left := s.Timing.Retaint - s.now.Sub(verdict.Since); left > 0 {
		return plan.KeepTaints, left
	}
	return plan.RestoreTaints, 0
}

// isSilent reports whether a node is not ready because of its kubelet.
func isSilent(reason string) bool {
	return reason == v1.ReasonNodeUnreachable || reason == v1.ReasonNodeNotReady
}

// writeTaints changes the taints of the node as wished. The list is written whole, so the write fails with a conflict if
// the node has changed since it was read. A write that the API server refuses is no error: the verdict on the node
// reports it, and it is tried again later.
func (s *scope) writeTaints(ctx context.Context, spec v1.NodeStartupSpec, wish plan.DesiredTaint) error {
	now := plan.Taints{All: s.node.Spec.Taints}
	noted := s.node.Annotations[labels.StartupTaints]
	if noted != "" {
		now.Restored = strings.Split(noted, ",")
	}
	after := plan.StartupTaints(spec, now, wish)
	note := strings.Join(after.Restored, ",")
	gone, back := plan.TaintDifference(now.All, after.All), plan.TaintDifference(after.All, now.All)
	if gone == "" && back == "" && note == noted || !s.writes() {
		return nil
	}
	change := fmt.Sprintf("off %s, on %s", gone, back)
	if left := s.refused.left(change); left > 0 {
		s.sooner(left)
		return nil
	}
	err := s.patch(ctx, "taints", taintPatch(s.node, after.All, note))
	if apierrors.IsForbidden(err) {
		s.refused.add(change, s.Timing.RetryRefused)
		s.sooner(s.Timing.RetryRefused)
		log.FromContext(ctx).Error(err, "The API server refuses to let start-up taints be changed: name their keys in ownTaints of its admission policy", "off", gone, "on", back)
		return nil
	}
	if err == nil {
		log.FromContext(ctx).Info("Changed start-up taints", "off", gone, "on", back)
	}
	return err
}

// taintPatch replaces the taints of the node, and the note of those that the operator has put back.
func taintPatch(node *corev1.Node, taints []corev1.Taint, note string) map[string]any {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	if _, noted := node.Annotations[labels.StartupTaints]; noted || note != "" {
		value := &note
		if note == "" {
			value = nil
		}
		metadata["annotations"] = map[string]*string{labels.StartupTaints: value}
	}
	return map[string]any{"metadata": metadata, "spec": map[string]any{"taints": slices.Clone(taints)}}
}
