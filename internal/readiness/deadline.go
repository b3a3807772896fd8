package readiness

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// overduePrefix begins the message of what has passed its deadline.
const overduePrefix = "for more than "

// ApplyDeadline judges what is on its way since this time and has a deadline, of which 0 is none: once that has
// passed, it has failed, with the same reason. Nothing follows from a time that is not known.
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
	verdict.Message = overduePrefix + shortDuration(deadline) + ": " + verdict.Message
	return verdict
}

// shortDuration is 30m for 30m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// ReadySince is since when a pod has been ready, zero where it is not or nobody says.
func ReadySince(pod *corev1.Pod) time.Time {
	if condition := podCondition(pod, corev1.PodReady); condition != nil && condition.Status == corev1.ConditionTrue {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}

// UnreadySince is since when a pod has not been ready: since it was made, if it never was.
func UnreadySince(pod *corev1.Pod) time.Time {
	condition := podCondition(pod, corev1.PodReady)
	if condition != nil && condition.Status != corev1.ConditionTrue && !condition.LastTransitionTime.IsZero() {
		return condition.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}
