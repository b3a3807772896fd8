package node

import (
	"context"
	"encoding/json"
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
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

const (
	// retaintAfter is how long a node must have been without a usable GPU before its start-up taints come back:
	// a pod that is replaced, or a driver that starts anew, takes less.
	retaintAfter = 2 * time.Minute
	// retryRefused is when a change of taints is tried again that the API server has refused: no event tells that
	// its admission policy has been changed. One node tries for all.
	retryRefused = 30 * time.Second
)

// startup brings the start-up taints of a node up to date with the verdict on it, in one write or none, and tells
// after how long to come back. It leaves the node as it then is.
func (r *Reconciler) startup(ctx context.Context, node *corev1.Node, spec v1.NodeStartupSpec, assessment status.NodeAssessment) (time.Duration, error) {
	wish, wait := r.taintWish(node, spec, assessment)
	refused, err := r.writeTaints(ctx, node, spec, wish)
	if refused > 0 {
		return refused, err
	}
	return wait, err
}

// taintWish is what the verdict means for the taints, and after how long it means something else. Where the
// kubelet does not answer, Kubernetes itself taints the node.
func (r *Reconciler) taintWish(node *corev1.Node, spec v1.NodeStartupSpec, assessment status.NodeAssessment) (plan.TaintWish, time.Duration) {
	switch {
	case assessment.Usable:
		return plan.DropTaints, 0
	case assessment.Excluded:
		return plan.ReleaseTaints, 0
	case spec.OnFailure != v1.OnFailureTaint || assessment.State != readiness.Failed || isSilent(assessment.Reason):
		return plan.KeepTaints, 0
	}
	left := retaintAfter
	if condition := status.GPUReadyCondition(node); condition != nil && condition.Status == corev1.ConditionFalse {
		left -= r.Clock.Since(condition.LastTransitionTime.Time)
	}
	if left > 0 {
		return plan.KeepTaints, left
	}
	return plan.PutTaints, 0
}

// isSilent tells whether it is the kubelet that a node is not ready for.
func isSilent(reason string) bool {
	return reason == v1.ReasonNodeUnreachable || reason == v1.ReasonNodeNotReady
}

// writeTaints changes the taints of the node as it is wished. The list is written whole, so the write fails with a
// conflict if the node has changed since it was read. A write that the API server refuses is no error: the verdict
// on the node tells of it. The time is after how long to try that again; 0 if it was not refused.
func (r *Reconciler) writeTaints(ctx context.Context, node *corev1.Node, spec v1.NodeStartupSpec, wish plan.TaintWish) (time.Duration, error) {
	now := plan.Taints{All: node.Spec.Taints}
	noted := node.Annotations[labels.StartupTaints]
	if noted != "" {
		now.Back = strings.Split(noted, ",")
	}
	after := plan.StartupTaints(spec, now, wish)
	note := strings.Join(after.Back, ",")
	gone, back := plan.TaintNames(now.All, after.All), plan.TaintNames(after.All, now.All)
	if gone == "" && back == "" && note == noted {
		return 0, nil
	}
	change := fmt.Sprintf("off %s, on %s", gone, back)
	if left := r.refused.left(change); left > 0 {
		return left, nil
	}
	patch, err := taintPatch(node, after.All, note)
	if err != nil {
		return 0, err
	}
	err = r.patch(ctx, node, patch, "taints")
	if apierrors.IsForbidden(err) {
		r.refused.start(change, retryRefused)
		log.FromContext(ctx).Error(err, "The API server refuses to let start-up taints be changed: name their keys in ownTaints of its admission policy", "off", gone, "on", back)
		return retryRefused, nil
	}
	if err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("Changed start-up taints", "off", gone, "on", back)
	node.Spec.Taints = after.All
	return 0, nil
}

// taintPatch replaces the taints of the node, and the note of those that the operator has put back.
func taintPatch(node *corev1.Node, taints []corev1.Taint, note string) ([]byte, error) {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	if _, noted := node.Annotations[labels.StartupTaints]; noted || note != "" {
		value := &note
		if note == "" {
			value = nil
		}
		metadata["annotations"] = map[string]*string{labels.StartupTaints: value}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"taints": slices.Clone(taints)}})
	if err != nil {
		return nil, fmt.Errorf("encoding taints of node %s: %w", node.Name, err)
	}
	return patch, nil
}
