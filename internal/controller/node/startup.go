package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

// updateTaints updates the start-up taints of the node according to its assessment, in one write or none.
func (s *scope) updateTaints(ctx context.Context, spec v1.NodeStartupSpec) error {
	action, wait := s.taintAction(spec)
	s.requeueWithin(wait)
	return s.writeTaints(ctx, spec, action, s.readyBoot(spec, action))
}

// taintAction returns what to do with the taints, and after how long that changes. A node whose kubelet does not
// respond is tainted by Kubernetes itself.
func (s *scope) taintAction(spec v1.NodeStartupSpec) (startuptaint.Action, time.Duration) {
	latest := &s.entry.Latest
	switch {
	case latest.InService():
		return startuptaint.Remove, 0
	case latest.Excluded:
		return startuptaint.Release, 0
	case s.hasBooted():
		return startuptaint.RestoreAfterBoot, 0
	case spec.OnFailure != v1.OnFailureTaint || latest.State != readiness.Failed || isKubeletDown(latest.Reason):
		return startuptaint.Keep, 0
	}
	if left := s.Timing.Retaint - s.now.Sub(latest.Since); left > 0 {
		return startuptaint.Keep, left
	}
	return startuptaint.Restore, 0
}

// hasBooted reports whether the node has booted since its GPUs could last be used. That is unknown, and so not the
// case, for a node without a record, or if its kubelet reports no boot ID.
func (s *scope) hasBooted() bool {
	recorded, boot := s.node.Annotations[labels.ReadyBoot], s.node.Status.NodeInfo.BootID
	return recorded != "" && boot != "" && recorded != boot
}

// readyBoot returns the boot ID to record: that with which GPUs can be used, or could last be; empty for none.
func (s *scope) readyBoot(spec v1.NodeStartupSpec, action startuptaint.Action) string {
	switch {
	case action == startuptaint.Release || !startuptaint.HasRestorable(spec) && !*spec.CleanFailedPods:
		return ""
	case action == startuptaint.Remove:
		return cmp.Or(s.node.Status.NodeInfo.BootID, s.node.Annotations[labels.ReadyBoot])
	}
	return s.node.Annotations[labels.ReadyBoot]
}

// isKubeletDown reports whether a node is not ready because of its kubelet.
func isKubeletDown(reason string) bool {
	return reason == v1.ReasonNodeUnreachable || reason == v1.ReasonNodeNotReady
}

// writeTaints changes the taints of the node and, in the same write, the recorded boot ID. The write replaces the whole
// list, so it fails with a conflict if the node has changed since it was read. A write that the API server forbids is
// not an error: the assessment reports it, and it is retried later.
func (s *scope) writeTaints(
	ctx context.Context, spec v1.NodeStartupSpec, action startuptaint.Action, readyBoot string,
) error {
	now := startuptaint.Taints{All: s.node.Spec.Taints}
	recorded := s.node.Annotations[labels.StartupTaints]
	if recorded != "" {
		now.Restored = strings.Split(recorded, ",")
	}
	after := startuptaint.Next(spec, now, action)
	notes := map[string]*string{}
	note(notes, s.node, labels.StartupTaints, strings.Join(after.Restored, ","))
	note(notes, s.node, labels.ReadyBoot, readyBoot)
	removed, added := startuptaint.Difference(now.All, after.All), startuptaint.Difference(after.All, now.All)
	if removed == "" && added == "" && len(notes) == 0 || !s.beginWrite() {
		return nil
	}
	change := fmt.Sprintf("remove %s, add %s", removed, added)
	if left := s.taintBackoff.remaining(change); left > 0 {
		s.requeueWithin(left)
		return nil
	}
	err := s.patch(ctx, "taints", taintPatch(s.node, after.All, notes))
	if apierrors.IsForbidden(err) {
		s.taintBackoff.add(change, s.Timing.RetryForbidden)
		s.requeueWithin(s.Timing.RetryForbidden)
		log.FromContext(ctx).Error(err, "Changing start-up taints is forbidden: add their keys to "+
			"the chart's nodeStartup.taints, or to ownTaints of the operator's ValidatingAdmissionPolicy",
			"removed", removed, "added", added)
		return nil
	}
	if err == nil && (removed != "" || added != "") {
		log.FromContext(ctx).Info("Changed start-up taints", "removed", removed, "added", added)
	}
	return err
}

// note adds the change of an annotation to the value, if the node has another one; an empty value removes it.
func note(changes map[string]*string, node *corev1.Node, annotation, value string) {
	switch current, exists := node.Annotations[annotation]; {
	case value == "" && exists:
		changes[annotation] = nil
	case value != current:
		changes[annotation] = &value
	}
}

// taintPatch replaces the taints of the node, and makes these changes of annotations.
func taintPatch(node *corev1.Node, taints []corev1.Taint, notes map[string]*string) map[string]any {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	if len(notes) > 0 {
		metadata["annotations"] = notes
	}
	return map[string]any{"metadata": metadata, "spec": map[string]any{"taints": slices.Clone(taints)}}
}
