package readiness

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// overduePrefix starts the message of a verdict whose deadline has passed.
const overduePrefix = "not ready after "

// ApplyDeadline turns a verdict that has been progressing since the given time for longer than the deadline into a
// failure with the same reason. Before that it sets Until to the end of the deadline. A deadline of 0 and an unknown
// (zero) time change nothing.
func ApplyDeadline(deadline time.Duration, verdict Verdict, since, now time.Time) Verdict {
	if verdict.State != Progressing || deadline == 0 || since.IsZero() {
		return verdict
	}
	due := since.Add(deadline)
	if now.Before(due) {
		if verdict.Until.IsZero() || due.Before(verdict.Until) {
			verdict.Until = due
		}
		return verdict
	}
	verdict.State, verdict.Overdue = Failed, true
	verdict.Message = overduePrefix + times.Short(deadline) + ": " + verdict.Message
	return verdict
}

// ReadySince returns since when the pod has been ready; zero if it is not ready or the time is unknown.
func ReadySince(pod *corev1.Pod) time.Time {
	if !PodIsReady(pod) {
		return time.Time{}
	}
	return podCondition(pod, corev1.PodReady).LastTransitionTime.Time
}

// UnreadySince returns since when the pod has not been ready: since its creation if it never was.
func UnreadySince(pod *corev1.Pod) time.Time {
	condition := podCondition(pod, corev1.PodReady)
	if condition != nil && condition.Status != corev1.ConditionTrue && !condition.LastTransitionTime.IsZero() {
		return condition.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}
