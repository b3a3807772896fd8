package readiness_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func TestApplyDeadline(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	starting := readiness.Verdict{State: readiness.Progressing, Reason: "Starting", Message: "the pod is starting"}
	until := func(v readiness.Verdict, after time.Duration) readiness.Verdict {
		v.Until = begin.Add(after)
		return v
	}
	late := func(text string) readiness.Verdict {
		return readiness.Verdict{State: readiness.Failed, Reason: "Starting", Message: text, Overdue: true}
	}
	tests := map[string]struct {
		deadline time.Duration
		verdict  readiness.Verdict
		since    time.Time
		after    time.Duration
		want     readiness.Verdict
	}{
		"before the deadline": {
			deadline: time.Minute,
			verdict:  starting,
			since:    begin,
			after:    59 * time.Second,
			want:     until(starting, time.Minute),
		},
		"at the deadline": {
			deadline: time.Minute,
			verdict:  starting,
			since:    begin,
			after:    time.Minute,
			want:     late("not ready after 1m: the pod is starting"),
		},
		"long after the deadline": {
			deadline: time.Hour,
			verdict:  starting,
			since:    begin,
			after:    9 * time.Hour,
			want:     late("not ready after 1h: the pod is starting"),
		},
		"hours and minutes": {
			deadline: 90 * time.Minute,
			verdict:  starting,
			since:    begin,
			after:    9 * time.Hour,
			want:     late("not ready after 1h30m: the pod is starting"),
		},
		"seconds": {
			deadline: 30 * time.Second,
			verdict:  starting,
			since:    begin,
			after:    time.Hour,
			want:     late("not ready after 30s: the pod is starting"),
		},
		"no deadline":   {verdict: starting, since: begin, after: 9 * time.Hour, want: starting},
		"unknown start": {deadline: time.Minute, verdict: starting, after: 9 * time.Hour, want: starting},
		"an earlier Until": {
			deadline: time.Hour,
			verdict:  until(starting, time.Minute),
			since:    begin,
			want:     until(starting, time.Minute),
		},
		"ready": {deadline: time.Minute, since: begin, after: time.Hour},
		"failed for another reason": {
			deadline: time.Minute,
			verdict:  readiness.Verdict{State: readiness.Failed, Reason: "CrashLoopBackOff"},
			since:    begin,
			after:    time.Hour,
			want:     readiness.Verdict{State: readiness.Failed, Reason: "CrashLoopBackOff"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := readiness.ApplyDeadline(test.deadline, test.verdict, test.since, begin.Add(test.after))
			g.Expect(got).To(Equal(test.want))
			g.Expect(got.Overdue).
				To(Equal(test.verdict.State == readiness.Progressing && got.State == readiness.Failed))
		})
	}
}

func TestSince(t *testing.T) {
	created, changed := metav1.Unix(1_000, 0), metav1.Unix(2_000, 0)
	pod := func(status corev1.ConditionStatus) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
		if status != "" {
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: status, LastTransitionTime: changed},
			}
		}
		return pod
	}
	for name, test := range map[string]struct {
		pod            *corev1.Pod
		ready, unready time.Time
	}{
		"ready":     {pod: pod(corev1.ConditionTrue), ready: changed.Time, unready: created.Time},
		"not ready": {pod: pod(corev1.ConditionFalse), unready: changed.Time},
		"new":       {pod: pod(""), unready: created.Time},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(readiness.ReadySince(test.pod)).To(Equal(test.ready))
			g.Expect(readiness.UnreadySince(test.pod)).To(Equal(test.unready))
		})
	}
}
