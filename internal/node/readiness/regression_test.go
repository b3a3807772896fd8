package readiness_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func TestRepeatedExitsWithCode0AreACrashLoop(t *testing.T) {
	first := readiness.Pod(pod(with(status("main", waiting("CrashLoopBackOff", ""), terminated(0, "")))), "now", now)
	for _, form := range []corev1.ContainerStatus{
		status("main", terminated(0, ""), terminated(0, "")), status("main", running(), terminated(0, "")),
	} {
		if diff := cmp.Diff(first, readiness.Pod(pod(with(form)), "now", now)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestWaitingFailuresOfTheKubelet(t *testing.T) {
	const imagePull = "ImagePullBackOff"
	for reason, want := range map[string]string{
		"CrashLoopBackOff": "CrashLoopBackOff", "ErrImagePull": imagePull, imagePull: imagePull,
		"RegistryUnavailable": imagePull, "SignatureValidationFailed": imagePull, "ErrImageNeverPull": "ErrImageNeverPull",
		"InvalidImageName": "InvalidImageName", "ImageInspectError": "ImageInspectError",
		"CreateContainerConfigError": "CreateContainerConfigError", "CreateContainerError": "CreateContainerError",
		"RunContainerError": "RunContainerError", "PreCreateHookError": "PreCreateHookError",
		"PreStartHookError": "PreStartHookError", "PostStartHookError": "PostStartHookError",
	} {
		got := readiness.Pod(pod(with(status("main", waiting(reason, "")))), "now", now)
		if got.State != readiness.Failed || got.Reason != want {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

func TestUnschedulableMessageIsStable(t *testing.T) {
	verdict := func(message string) readiness.Verdict {
		return readiness.Pod(pod(condition(corev1.PodScheduled, "False", "Unschedulable", message)), "now", now)
	}
	a := verdict("0/100 nodes are available: 1 Insufficient memory, 99 node(s) didn't satisfy plugin(s) [NodeAffinity].")
	b := verdict("0/101 nodes are available: 1 Insufficient memory, 100 node(s) didn't satisfy plugin(s) [NodeAffinity].")
	if a != b {
		t.Errorf("%q %q", a.Message, b.Message)
	}
}

// A reboot terminates every container and creates a new sandbox, in which the init containers run again.
func TestARebootIsNotACrash(t *testing.T) {
	boot := metav1.NewTime(now.Add(-time.Minute))
	before := metav1.NewTime(boot.Add(-time.Hour))
	old := corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", FinishedAt: before},
	}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: boot, FinishedAt: boot}}
	building := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: boot}}
	rebooted := pod(with(status("main", building, old)))
	rebooted.Status.InitContainerStatuses = []corev1.ContainerStatus{status("init", done, corev1.ContainerState{})}
	if got := readiness.Pod(rebooted, "now", now); got.State != readiness.Progressing {
		t.Errorf("got %+v", got)
	}
	crash := corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(boot.Add(time.Second))},
	}
	crashedSince := pod(with(status("main", building, crash)))
	crashedSince.Status.InitContainerStatuses = rebooted.Status.InitContainerStatuses
	if got := readiness.Pod(crashedSince, "now", now); got.State != readiness.Failed {
		t.Errorf("a crash after the reboot: got %+v", got)
	}
}
