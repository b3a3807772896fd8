package node

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
)

// writeHealth writes the condition nvidia.com/GPUHealthy if the node shows another one. The health agent reports only
// some times a minute, so that each report is written at once. On a node without an agent it removes what one has left.
func (s *scope) writeHealth(ctx context.Context) error {
	before, after := assess.GPUHealthyCondition(s.node), s.entry.Latest.HealthCondition(s.node.Name)
	if after == nil {
		return s.forgetHealth(ctx, before != nil)
	}
	record := assess.RecordOf(s.node)
	faultsEnd, due := s.addAction(before, after, record)
	if !due {
		return nil
	}
	record.FaultsEnd = faultsEnd
	if before != nil && before.Status == after.Status && before.Reason == after.Reason &&
		before.Message == after.Message && record.IsOf(s.node) {
		return nil
	}
	if !s.beginWrite() {
		return nil
	}
	after.LastHeartbeatTime, after.LastTransitionTime = metav1.NewTime(s.now), metav1.NewTime(s.now)
	if before != nil && before.Status == after.Status {
		after.LastTransitionTime = before.LastTransitionTime
	}
	log.FromContext(ctx).Info("Setting the health condition",
		"status", after.Status, "reason", after.Reason, "message", after.Message)
	if event, due := s.healthEvent(before, after); due {
		s.Events.Record(ctx, event)
	}
	return s.patchConditions(ctx, record, *after)
}

// recordNotes writes the Event about what the health agent has noted since the last look: errors of programs, reasons
// to watch a GPU, and a driver that does not answer. The agent itself may write no Events. What was noted while no
// operator ran has none.
func (s *scope) recordNotes(ctx context.Context) {
	if s.previous == nil || s.previous.Latest.At.IsZero() || s.basis.Paused() {
		return
	}
	notes := s.entry.Latest.NewHealthNotes(s.previous.Latest.Health, s.node.Name, s.now)
	if notes == nil {
		return
	}
	s.Events.Record(ctx, events.Event{
		Regarding: s.regarding(), Type: corev1.EventTypeWarning, Reason: notes.Reason, Message: notes.Message,
		Transition: notes.Transition,
	})
}

// regarding is the Node as the object of an Event.
func (s *scope) regarding() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.node.Name, UID: s.node.UID}
}

// addAction adds to the message what is done with the node because of its faults, or what keeps it from being
// done, and returns where the faults end then; 0 if it adds nothing. The condition is not due if that is not known yet,
// and the node shows the same faults with an action.
func (s *scope) addAction(before, after *corev1.NodeCondition, record assess.Record) (faultsEnd int, due bool) {
	verdict, known := s.Fleet.HealthAction(s.node.Name)
	faulty := after.Status != corev1.ConditionTrue
	if !known {
		if !faulty || before == nil || before.Status != after.Status || before.Reason != after.Reason {
			return 0, true
		}
		return 0, record.FaultsEnd != len(after.Message) || !strings.HasPrefix(before.Message, after.Message)
	}
	if !faulty || verdict.Text == "" {
		return 0, true
	}
	faultsEnd = len(after.Message)
	after.Message += "; " + verdict.Text
	return faultsEnd, true
}

// forgetHealth removes the report of an agent that is not on the node any more, and the condition.
func (s *scope) forgetHealth(ctx context.Context, hasCondition bool) error {
	_, reported := s.node.Annotations[labels.GPUHealth]
	if !reported && !hasCondition || !s.beginWrite() {
		return nil
	}
	if reported {
		if err := s.patchMetadata(ctx, nil, map[string]*string{labels.GPUHealth: nil}); err != nil {
			return err
		}
	}
	if !hasCondition {
		return nil
	}
	record := assess.RecordOf(s.node)
	record.FaultsEnd = 0
	return s.patchConditions(ctx, record, nodemarks.DeletedConditions(labels.ConditionGPUHealthy)...)
}

// healthEvent returns the Event for a change of the condition, and whether there is one: for each other set of faults,
// and for the end of all.
func (s *scope) healthEvent(before, after *corev1.NodeCondition) (event events.Event, due bool) {
	wasUnhealthy := before != nil && before.Status == corev1.ConditionFalse
	event = events.Event{
		Regarding: s.regarding(), Type: corev1.EventTypeWarning, Reason: after.Reason, Message: after.Message,
		Transition: fmt.Sprintf("%s > %s", transition(before), after.Message),
	}
	if after.Status == corev1.ConditionTrue {
		event.Type = corev1.EventTypeNormal
		return event, wasUnhealthy
	}
	return event, after.Status == corev1.ConditionFalse
}
