package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// report writes the condition nvidia.com/GPUReady if the node shows another one. A failure, ready, and no longer ready
// are written at once. The stages of a node that is starting are written once they have lasted: a node that is ready
// before that has one write in all, and where a thousand nodes start, not each is written at each step.
func (s *scope) report(ctx context.Context) error {
	writes, report := &s.entry.Writes, &s.entry.Report
	before := assess.GPUReadyCondition(s.node)
	if before != nil && isSame(s.node.Name, before, &report.Assessment) {
		writes.Stage, writes.StageSince = "", time.Time{}
		// Also of a condition that was written before a restart.
		writes.Failed = report.State == readiness.Failed
		return nil
	}
	if !s.writes() {
		return nil
	}
	settles := s.settles(before)
	if settles {
		if left := s.unsettled(); left > 0 {
			s.sooner(left)
			return nil
		}
	}
	condition := report.Condition(s.node.Name)
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(s.now), metav1.NewTime(report.Since)
	if before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	log.FromContext(ctx).Info("Setting condition", "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	if event, due := s.event(before, &condition); due {
		s.Events.Record(ctx, event)
	}
	if err := s.patchCondition(ctx, condition); err != nil {
		return err
	}
	writes.Failed = report.State == readiness.Failed
	s.written(settles && before != nil && before.Status == condition.Status)
	return nil
}

// settles reports whether the stage of the node must last before it is written.
func (s *scope) settles(before *corev1.NodeCondition) bool {
	report := &s.entry.Report
	return report.Reason == v1.ReasonDiscoveryLabelsMissing ||
		report.State == readiness.Progressing && (before == nil || before.Status != corev1.ConditionTrue)
}

// unsettled is how much longer the node must be at its stage before that is written.
func (s *scope) unsettled() time.Duration {
	writes, report := &s.entry.Writes, &s.entry.Report
	if stage := fmt.Sprintf("%s %s", report.Stage, report.Reason); writes.Stage != stage {
		writes.Stage, writes.StageSince = stage, s.now
	}
	return s.settle() - s.now.Sub(writes.StageSince)
}

// settle is how long a stage must last in all.
func (s *scope) settle() time.Duration {
	t := &s.Timing
	shortest := t.Settle + time.Duration(max(s.Fleet.Starting()-1, 0))*t.SettlePerNode
	return min(max(s.entry.Writes.Settle, shortest), t.LongestSettle)
}

// written notes that a stage of a node that is starting has been written, or what ends that.
func (s *scope) written(stage bool) {
	writes := &s.entry.Writes
	next := time.Duration(0)
	if stage {
		next = min(time.Duration(s.Timing.Slower)*s.settle(), s.Timing.LongestSettle)
	}
	writes.Stage, writes.StageSince, writes.Settle = "", time.Time{}, next
}

// event is the Event of a node whose condition is about to change, and whether there is one: that it has failed, with
// each other cause, and that it is ready after that. Nodes that start without a failure have none.
func (s *scope) event(before, after *corev1.NodeCondition) (event events.Event, due bool) {
	report := &s.entry.Report
	event = events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.node.Name, UID: s.node.UID},
		Type:      corev1.EventTypeWarning, Reason: after.Reason, Message: after.Message,
		Transition: fmt.Sprintf("%s > %s", transition(before), report.Cause(s.node.Name)),
	}
	if report.Ready() {
		event.Type, event.Reason = corev1.EventTypeNormal, v1.ReasonGPUReady
		return event, s.hadFailed(before)
	}
	return event, report.State == readiness.Failed
}

// hadFailed reports whether the condition that is about to be replaced is of a failure: by its reason or, where the node
// was overdue and kept its reason, by what the controller has kept.
func (s *scope) hadFailed(before *corev1.NodeCondition) bool {
	if before == nil || before.Status == corev1.ConditionTrue {
		return false
	}
	return assess.IsFailure(before.Reason) || s.entry.Writes.Failed
}

// transition distinguishes a verdict that was written from others of the node.
func transition(before *corev1.NodeCondition) string {
	if before == nil {
		return ""
	}
	return fmt.Sprintf("%s %s since %s", before.Status, before.Reason, before.LastTransitionTime.UTC())
}
