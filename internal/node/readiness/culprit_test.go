package readiness_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// The culprit of a pod is the container that its verdict is about, and the log to read is the one that has the failure.
func TestCulpritOf(t *testing.T) {
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	one := func(name string, state, last corev1.ContainerState, ready bool) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: state, LastTerminationState: last, Ready: ready}
	}
	none := corev1.ContainerState{}
	for name, test := range map[string]struct {
		init, main []corev1.ContainerStatus
		want       readiness.Culprit
	}{
		"no statuses": {},
		"ready": {main: []corev1.ContainerStatus{one("a", running, none, true), one("b", running, none, true)},
			want: readiness.Culprit{Container: "a"}},
		"not ready": {main: []corev1.ContainerStatus{one("a", running, none, true), one("b", running, none, false)},
			want: readiness.Culprit{Container: "b"}},
		"has not run":      {main: []corev1.ContainerStatus{one("a", waiting("ContainerCreating"), none, false)}},
		"cannot be pulled": {main: []corev1.ContainerStatus{one("a", waiting("ErrImagePull"), none, false)}},
		"has failed": {main: []corev1.ContainerStatus{one("a", failed, none, false)},
			want: readiness.Culprit{Container: "a", Crashed: true}},
		"waits for a restart": {main: []corev1.ContainerStatus{one("a", waiting("CrashLoopBackOff"), failed, false)},
			want: readiness.Culprit{Container: "a", Crashed: true, Previous: true}},
		"was restarted": {
			main: []corev1.ContainerStatus{one("a", running, none, true), one("b", running, failed, false)},
			want: readiness.Culprit{Container: "b", Crashed: true, Previous: true}},
		"an init container runs": {
			init: []corev1.ContainerStatus{one("first", done, none, true), one("wait", running, none, false)},
			main: []corev1.ContainerStatus{one("a", waiting("PodInitializing"), failed, false)},
			want: readiness.Culprit{Container: "wait"}},
		"an init container fails": {
			init: []corev1.ContainerStatus{one("first", waiting("CrashLoopBackOff"), failed, false)},
			want: readiness.Culprit{Container: "first", Crashed: true, Previous: true}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: test.init, ContainerStatuses: test.main}}
			NewWithT(t).Expect(readiness.CulpritOf(pod)).To(Equal(test.want))
		})
	}
}
