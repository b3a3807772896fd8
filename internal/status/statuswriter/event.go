package statuswriter

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
)

// policyEvent returns the Event about a policy whose condition Degraded is about to change its status or reason, and
// whether it does.
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

// outdatedEvent returns the Event of components with known vulnerabilities, when the condition appears: not for each
// node that joins later with one.
func outdatedEvent(policy *v1.ClusterPolicy, after v1.ClusterPolicyStatus) (events.Event, bool) {
	current := meta.FindStatusCondition(after.Conditions, v1.ConditionOutdatedComponent)
	if current == nil || meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionOutdatedComponent) != nil {
		return events.Event{}, false
	}
	return events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeWarning,
		Reason: v1.ReasonOutdatedComponent, Message: current.Message,
		Transition: fmt.Sprintf("outdated in generation %d", policy.Generation),
	}, true
}

// operandEvents returns an Event for each operand of withoutStage that begins to fail, as no node reports it. The one
// whose message is that of the policy's own Event, policyMessage, is left out.
func operandEvents(
	policy *v1.ClusterPolicy, after v1.ClusterPolicyStatus, withoutStage sets.Set[string], policyMessage string,
) []events.Event {
	var found []events.Event
	for i := range after.Operands {
		current := &after.Operands[i]
		message := fmt.Sprintf("%s: %s", current.Name, current.Message)
		if current.State != v1.OperandDegraded || !withoutStage.Has(current.Name) || message == policyMessage ||
			wasDegraded(policy.Status, current.Name) {
			continue
		}
		found = append(found, events.Event{
			Regarding: policyReference(policy), Type: corev1.EventTypeWarning, Reason: current.Reason, Message: message,
			// The status of an operand has no transition time. The version is that of the last status without the failure.
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

// RecordFrozen records an Event that the operator changes nothing for a policy, whose status stays as it is. since must
// differ each time that this begins.
func (w *Writer) RecordFrozen(ctx context.Context, policy *v1.ClusterPolicy, reason, message, since string) {
	w.events.Record(ctx, events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeWarning,
		Reason: reason, Message: message, Transition: since,
	})
}

// RecordUndecodable records an Event that a generation of a policy or an NVIDIADriver cannot be decoded.
func (w *Writer) RecordUndecodable(
	ctx context.Context, kind schema.GroupVersionKind, object client.Object, message string,
) {
	w.events.Record(ctx, events.Event{
		Regarding: corev1.ObjectReference{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: object.GetName(), UID: object.GetUID(),
		},
		Type: corev1.EventTypeWarning, Reason: v1.ReasonUndecodable, Message: message,
		Transition: fmt.Sprintf("generation %d", object.GetGeneration()),
	})
}

// RecordRemoval records an Event that the removal of the stack of a deleted policy begins, which also says how it ends
// where the operator is removed meanwhile: then nothing else would.
func (w *Writer) RecordRemoval(ctx context.Context, policy *v1.ClusterPolicy) {
	w.events.Record(ctx, events.Event{
		Regarding: policyReference(policy), Type: corev1.EventTypeNormal, Reason: v1.ReasonRemoving,
		Message: "the stack is being removed from all nodes: keep the operator until this policy is gone. If the operator " +
			"is gone before, install it again, or remove the rest: kubectl gpu cleanup",
	})
}

func policyReference(policy *v1.ClusterPolicy) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1.GroupVersion.String(), Kind: v1.ClusterPolicyKind.Kind, Name: policy.Name, UID: policy.UID,
	}
}
