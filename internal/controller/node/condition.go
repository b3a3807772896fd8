package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// writeCondition writes the condition nvidia.com/GPUReady if the node shows another one. Failed, ready and no longer
// ready are written immediately; the stages of a starting node after their dwell time, so that a node which becomes
// ready before has one write, also if a thousand nodes start.
func (s *scope) writeCondition(ctx context.Context) error {
	writes, report := &s.entry.Writes, &s.entry.Report
	before := assess.GPUReadyCondition(s.node)
	if reportShows(s.node, &report.Assessment) {
		writes.Stage, writes.StageSince, writes.StageDwell = "", time.Time{}, 0
		// Also if the condition was written before a restart.
		writes.FailureWritten = report.State == readiness.Failed
		return nil
	}
	if !s.beginWrite() {
		return nil
	}
	dwells := s.mustDwell(before)
	if dwells {
		s.trackStage()
		if left := s.dwellLeft(); left > 0 {
			s.requeueWithin(left)
			return nil
		}
	}
	condition := report.Condition(s.node.Name)
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(s.now), metav1.NewTime(report.Since)
	if before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	log.FromContext(ctx).Info("Setting condition",
		"status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	if event, due := s.eventFor(before, &condition); due {
		s.Events.Record(ctx, event)
	}
	if err := s.patchConditions(ctx, report.Record(assess.RecordOf(s.node)), condition); err != nil {
		return err
	}
	writes.FailureWritten = report.State == readiness.Failed
	s.resetDwell(dwells && before != nil && before.Status == condition.Status)
	return nil
}

// mustDwell reports whether the stage of the node must last before it is written.
func (s *scope) mustDwell(before *corev1.NodeCondition) bool {
	report := &s.entry.Report
	return report.Reason == v1.ReasonDiscoveryLabelsMissing ||
		report.State == readiness.Progressing && (before == nil || before.Status != corev1.ConditionTrue)
}

// trackStage keeps since when the stage lasts, and how long it must. The most nodes that were starting at the same time
// count: the last ones of a large rollout are about to be ready when few others are left.
func (s *scope) trackStage() {
	writes, report := &s.entry.Writes, &s.entry.Report
	if stage := fmt.Sprintf("%s %s", report.Stage, report.Reason); writes.Stage != stage {
		writes.Stage, writes.StageSince, writes.StageDwell = stage, s.now, 0
	}
	writes.StageDwell = max(writes.StageDwell, s.stageDwell())
}

// dwellLeft returns how much longer the stage that trackStage has kept must last before it is written.
func (s *scope) dwellLeft() time.Duration {
	writes := &s.entry.Writes
	return writes.StageDwell - s.now.Sub(writes.StageSince)
}

// stageDwell returns how long a stage must last.
func (s *scope) stageDwell() time.Duration {
	t := &s.Timing
	shortest := t.StageDwell + time.Duration(max(s.Fleet.Starting()-1, 0))*t.StageDwellPerNode
	return min(max(s.entry.Writes.NextDwell, shortest), t.MaxStageDwell)
}

// resetDwell resets the dwell time after a write. stage: the stage of a starting node was written; the next one
// must last longer.
func (s *scope) resetDwell(stage bool) {
	writes := &s.entry.Writes
	next := time.Duration(0)
	if stage {
		next = min(time.Duration(s.Timing.StageDwellFactor)*s.stageDwell(), s.Timing.MaxStageDwell)
	}
	writes.Stage, writes.StageSince, writes.StageDwell, writes.NextDwell = "", time.Time{}, 0, next
}

// eventFor returns the Event for a change of the condition, and whether there is one: for each failure with another
// cause, not for another detail of the same pod, when a label takes the GPUs of a ready node away, when the node is
// ready after one of these, and when others run on it what an operand does, and no longer do. Another reason in the
// place of that is not its end.
func (s *scope) eventFor(before, after *corev1.NodeCondition) (event events.Event, due bool) {
	report := &s.entry.Report
	event = events.Event{
		Regarding: s.regarding(),
		Type:      corev1.EventTypeWarning, Reason: after.Reason, Message: after.Message,
		Transition: fmt.Sprintf("%s > %s %s", transition(before), report.Cause(s.node.Name), report.Pod),
	}
	if report.Ready() && assess.IsDuplicate(after.Reason) {
		event.Transition = fmt.Sprintf("%s > %s", transition(before), after.Message)
		return event, true
	}
	if report.Ready() {
		event.Type, event.Reason = corev1.EventTypeNormal, v1.ReasonGPUReady
		return event, s.hadFailed(before) || isOver(before, after)
	}
	return event, report.State == readiness.Failed && !s.showsFailure(before, after) || isTakenAway(before, after)
}

// isTakenAway reports whether a label or a field takes the GPUs of a node away that was ready.
func isTakenAway(before, after *corev1.NodeCondition) bool {
	return before != nil && before.Status == corev1.ConditionTrue && assess.IsKeptOff(after.Reason)
}

// isOver reports whether the GPUs of a ready node were taken away, or others ran on it what an operand does and no
// longer do.
func isOver(before, after *corev1.NodeCondition) bool {
	return before != nil && (assess.IsKeptOff(before.Reason) ||
		assess.IsDuplicate(before.Reason) && after.Reason == v1.ReasonGPUReady)
}

// showsFailure reports whether the condition has the cause of the report already. Another detail is another failure if
// it is of another pod.
func (s *scope) showsFailure(before, after *corev1.NodeCondition) bool {
	return s.showsCause(before) &&
		(before.Message == after.Message || assess.RecordOf(s.node).Pod == s.entry.Report.Pod)
}

// showsCause reports whether the condition has the cause of the report, with any detail.
func (s *scope) showsCause(before *corev1.NodeCondition) bool {
	report := &s.entry.Report
	cause := report.Cause(s.node.Name)
	return before != nil && before.Status == corev1.ConditionFalse && before.Reason == report.Reason &&
		assess.MessageUpToDate(before.Message, cause, cause)
}

// hadFailed reports whether the condition that is about to be replaced is a failure: by its reason or, for an overdue
// stage, which keeps its reason, by what the entry has recorded.
func (s *scope) hadFailed(before *corev1.NodeCondition) bool {
	if before == nil || before.Status == corev1.ConditionTrue {
		return false
	}
	return assess.IsFailure(before.Reason) || s.entry.Writes.FailureWritten
}

// transition identifies a written condition among those of the node.
func transition(before *corev1.NodeCondition) string {
	if before == nil {
		return ""
	}
	return fmt.Sprintf("%s %s since %s", before.Status, before.Reason, before.LastTransitionTime.UTC())
}
