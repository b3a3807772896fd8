package healthaction

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// carryOut makes the steps of the plan. What fails is planned again by a later pass.
func (s *scope) carryOut(ctx context.Context) {
	for i := range s.planned.Steps {
		step := &s.planned.Steps[i]
		if of := s.observed[step.Node]; !of.hold {
			of.written = s.patch(ctx, of.node, step)
		}
	}
}

// patch makes one step, and reports whether it has. The API server rejects it if the Node has changed since it was
// read, or was replaced by another one.
func (s *scope) patch(ctx context.Context, node *corev1.Node, step *healthaction.Step) bool {
	logger := log.FromContext(ctx).WithValues("node", step.Node)
	content, err := json.Marshal(patchOf(node, step))
	if err != nil {
		logger.Error(err, "Encoding a patch failed, which is a bug in the operator")
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: step.Node}}
	err = s.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, content))
	switch {
	case err == nil:
		delete(s.memory.failures, step.Node)
		s.memory.versions[step.Node] = written.ResourceVersion
		logger.Info("Health action", "why", step.Why)
	case apierrors.IsNotFound(err):
	case apierrors.IsConflict(err):
		// There may be no event, if the change is trimmed from the cache.
		s.RequeueAfter(s.Timing.RetryStale)
	default:
		logger.Error(err, "Changing a node for a health action failed", "why", step.Why)
		s.fail(step, err)
	}
	return err == nil
}

// fail holds back the node after a failed write.
func (s *scope) fail(step *healthaction.Step, err error) {
	node := step.Node
	first, last := s.Timing.FirstRetry, s.Timing.LastRetry
	if apierrors.IsForbidden(err) {
		first, last = s.Timing.RetryForbidden, s.Timing.RetryForbidden
	}
	next := failure{Backoff: s.memory.failures[node].Next(s.Now, first, last)}
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		next.message = answer.Status().Message
	}
	if step.TakesPlace() {
		s.memory.reject(node, s.Now, s.Timing.GiveUp, next.message)
	}
	s.memory.failures[node] = next
	s.RequeueAfter(next.Wait)
}

// patchOf returns the merge patch of a step. It replaces the whole list of taints.
func patchOf(node *corev1.Node, step *healthaction.Step) map[string]any {
	annotations := map[string]any{}
	if step.Record != nil {
		annotations[labels.HealthRecord] = step.Record.Encode()
	} else if _, recorded := node.Annotations[labels.HealthRecord]; recorded {
		annotations[labels.HealthRecord] = nil
	}
	if step.EndConsent {
		annotations[labels.HealthConsent] = nil
	}
	spec := map[string]any{}
	if step.Taint != nil {
		isOurs := func(taint corev1.Taint) bool { return taint.Key == labels.TaintUnhealthy }
		taints := slices.DeleteFunc(append([]corev1.Taint{}, node.Spec.Taints...), isOurs)
		if *step.Taint {
			taints = append(taints, corev1.Taint{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoSchedule})
		}
		spec["taints"] = taints
	}
	if step.Unschedulable != nil {
		spec["unschedulable"] = *step.Unschedulable
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": annotations}
	patch := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}
