package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestProgressMessageIsUpdated(t *testing.T) {
	e := newEnv(t, 1)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	e.startPod(0, "driver")
	e.pod(0, "driver").Status.ContainerStatuses = nil
	e.pod(0, "driver").Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "k8s-driver-manager", State: running},
	}
	first := e.status()
	e.pod(0, "driver").Status.InitContainerStatuses = nil
	e.pod(0, "driver").Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "nvidia-driver-ctr", State: running}}
	if got := e.status(first).Nodes[0].Message; got != "container nvidia-driver-ctr is not ready" {
		t.Errorf("the message is still %q", got)
	}
}

func TestFailureMessageNamesFailedNodesOnly(t *testing.T) {
	e := newEnv(t, 3)
	e.failPod(1, "driver", "boom")
	e.startPod(2, "driver")
	if got := ready(e.status()).Message; strings.Contains(got, "node-00002") || strings.Contains(got, "more") {
		t.Errorf("got %q", got)
	}
}
