package statuswriter

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/events"
)

// policyEvent is the Event of a policy whose status is about to change, and whether there is one: that it is
// degraded, with each other reason, and that it is no longer.
func policyEvent(policy *v1.ClusterPolicy, after v1.ClusterPolicyStatus) (events.Event, bool) {
	before := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionDegraded)
	current := meta.FindStatusCondition(after.Conditions, v1.ConditionDegraded)
	if current == nil || (before == nil && current.Status != metav1.ConditionTrue) ||
		(before != nil && before.Status == current.Status && before.Reason == current.Reason) {
		return events.Event{}, false
	}
	event := events.Event{
		Regarding: policyReference(policy),
		Type:      corev1.EventTypeWarning, Reason: current.Reason, Message: current.Message,
	}
	if before != nil {
		event.Transition = fmt.Sprintf("%s %s since %s", before.Status, before.Reason, before.LastTransitionTime.UTC())
	}
	ready := meta.FindStatusCondition(after.Conditions, v1.ConditionReady)
	if current.Status != metav1.ConditionTrue && ready != nil {
		event.Type, event.Reason, event.Message = corev1.EventTypeNormal, ready.Reason, "no longer degraded: "+ready.Message
	}
	return event, true
}

// operandEvents are the Events of a policy that tell of operands which begin to fail where no node tells: GPUs can
// be used without them. told is the message of the policy's own Event, as nothing is told twice.
func operandEvents(
	policy *v1.ClusterPolicy, after v1.ClusterPolicyStatus, unstaged sets.Set[string], policyMessage string,
) []events.Event {
	var found []events.Event
	for i := range after.Operands {
		current := &after.Operands[i]
		message := fmt.Sprintf("%s: %s", current.Name, current.Message)
		if current.State != v1.OperandDegraded || !unstaged.Has(current.Name) || message == policyMessage || wasDegraded(policy.Status, current.Name) {
			continue
		}
		found = append(found, events.Event{
			Regarding: policyReference(policy), Type: corev1.EventTypeWarning, Reason: current.Reason, Message: message,
			// The status tells no time of operands: it is the first failure after what was written last.
			Transition: fmt.Sprintf("operand %s fails after version %s", current.Name, policy.ResourceVersion),
		})
	}
	return found
}

func wasDegraded(status v1.ClusterPolicyStatus, name string) bool {
	return slices.ContainsFunc(status.Operands, func(o v1.OperandStatus) bool {
		return o.Name == name && o.State == v1.OperandDegraded
	})
}

// RecordFrozen records, by an Event and not in its status, that nothing is changed for a policy. since is another one for each
// time that this begins.
func (w *Writer) RecordFrozen(ctx context.Context, policy *v1.ClusterPolicy, message, since string) {
	w.events.Record(ctx, events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeWarning,
		Reason: v1.ConditionCRDOutdated, Message: message, Transition: since,
	})
}

func policyReference(policy *v1.ClusterPolicy) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1.GroupVersion.String(), Kind: v1.ClusterPolicyKind.Kind, Name: policy.Name, UID: policy.UID,
	}
}
