package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAStageOnItsWayIsToldAnew(t *testing.T) {
	b := newBed(t, 1)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	b.start(0, "driver")
	b.pod(0, "driver").Status.ContainerStatuses = nil
	b.pod(0, "driver").Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "k8s-driver-manager", State: running}}
	first := b.status()
	b.pod(0, "driver").Status.InitContainerStatuses = nil
	b.pod(0, "driver").Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "nvidia-driver-ctr", State: running}}
	if got := b.status(first).Nodes[0].Message; got != "container nvidia-driver-ctr is not ready" {
		t.Errorf("still tells %q", got)
	}
}

func TestOnlyNodesThatHaveFailedAreCalledSo(t *testing.T) {
	b := newBed(t, 3)
	b.fail(1, "driver", "boom")
	b.start(2, "driver")
	if got := ready(b.status()).Message; strings.Contains(got, "node-00002") || strings.Contains(got, "more") {
		t.Errorf("got %q", got)
	}
}
