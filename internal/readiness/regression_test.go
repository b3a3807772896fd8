package readiness_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

func TestEndingWellAgainAndAgainIsACrashLoop(t *testing.T) {
	first := readiness.Pod(pod(with(status("main", waiting("CrashLoopBackOff", ""), terminated(0, "")))), "now", now)
	for _, guise := range []corev1.ContainerStatus{
		status("main", terminated(0, ""), terminated(0, "")), status("main", running(), terminated(0, "")),
	} {
		if diff := cmp.Diff(first, readiness.Pod(pod(with(guise)), "now", now)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestEveryFailureOfTheKubeletIsOne(t *testing.T) {
	for _, reason := range []string{"SignatureValidationFailed", "ImageInspectError", "PreCreateHookError", "PreStartHookError"} {
		if got := readiness.Pod(pod(with(status("main", waiting(reason, "")))), "now", now); got.State != readiness.Failed {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

func TestUnschedulableIsStable(t *testing.T) {
	a := readiness.Pod(pod(condition(corev1.PodScheduled, "False", "Unschedulable", "0/100 nodes are available: 1 Insufficient memory, 99 node(s) didn't satisfy plugin(s) [NodeAffinity].")), "now", now)
	b := readiness.Pod(pod(condition(corev1.PodScheduled, "False", "Unschedulable", "0/101 nodes are available: 1 Insufficient memory, 100 node(s) didn't satisfy plugin(s) [NodeAffinity].")), "now", now)
	if a != b {
		t.Errorf("%q %q", a.Message, b.Message)
	}
}

// A reboot ends every container and makes a new sandbox, in which the init containers run again.
func TestARebootIsNoCrash(t *testing.T) {
	boot := metav1.NewTime(now.Add(-time.Minute))
	before := metav1.NewTime(boot.Add(-time.Hour))
	old := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", FinishedAt: before}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: boot, FinishedAt: boot}}
	building := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: boot}}
	rebooted := pod(with(status("main", building, old)))
	rebooted.Status.InitContainerStatuses = []corev1.ContainerStatus{status("init", done, corev1.ContainerState{})}
	if got := readiness.Pod(rebooted, "now", now); got.State != readiness.Progressing {
		t.Errorf("got %+v", got)
	}
	crashedSince := pod(with(status("main", building, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(boot.Add(time.Second))}})))
	crashedSince.Status.InitContainerStatuses = rebooted.Status.InitContainerStatuses
	if got := readiness.Pod(crashedSince, "now", now); got.State != readiness.Failed {
		t.Errorf("a crash after the reboot: got %+v", got)
	}
}
