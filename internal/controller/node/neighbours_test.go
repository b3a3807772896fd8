package node

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// restart replaces all that the operator remembers.
func (e *env) restart() {
	e.fleet = fleet.New()
	e.reconciler.Fleet = e.fleet
	e.reconciler = New(e.reconciler.Options)
	e.publish()
}

// Another device plugin beside the operator's is reported with one write and one Event, and its end with the same. A
// restart of the operator, which does not know it until it has looked, writes nothing.
func TestNeighboursAreReported(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.settle()
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	plugin := neighbour.Neighbour{Kind: neighbour.DevicePlugin, Workload: "DaemonSet kube-system/plugin"}
	found := neighbour.OnNodes{"a": {plugin}}
	before := e.writes
	e.fleet.SetNeighbours(found)
	e.settle()
	e.Expect(e.reported()).To(Equal("True DuplicateDevicePlugin"))
	e.Expect(assess.GPUReadyCondition(e.node()).Message).To(Equal("a: GPUs can be used; DaemonSet kube-system/plugin is " +
		"another device plugin: delete it, or set spec.devicePlugin.enabled: false"))
	e.Expect(e.eventTypes()).To(Equal(map[string]string{"DuplicateDevicePlugin": corev1.EventTypeWarning}))
	e.Expect(e.writes-before).To(Equal(1), "one write")

	before = e.writes
	e.restart()
	e.settle()
	e.fleet.SetNeighbours(found)
	e.settle()
	e.Expect(e.writes-before).To(BeZero(), "after a restart")

	e.restart()
	e.settle()
	e.fleet.SetNeighbours(neighbour.OnNodes{})
	e.settle()
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	e.Expect(e.eventTypes()).To(HaveKeyWithValue("GPUReady", corev1.EventTypeNormal))
	e.Expect(e.writes-before).To(Equal(1), "its end is written once")
}

// A node that fails while the operator does not know its neighbours is reported at once.
func TestUnknownNeighboursHideNothing(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.fleet.SetNeighbours(neighbour.OnNodes{"a": {{Kind: neighbour.DevicePlugin, Workload: "DaemonSet x/y"}}})
	e.settle()
	e.Expect(e.reported()).To(Equal("True DuplicateDevicePlugin"))
	e.restart()
	e.setPod("driver", func(status *corev1.PodStatus) {
		status.Conditions[1].Status = corev1.ConditionFalse
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "driver", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"},
		}}}
	})
	e.settle()
	e.Expect(e.reported()).To(HavePrefix("False "))
}

// eventTypes returns the type of the Events by their reason.
func (e *env) eventTypes() map[string]string {
	e.t.Helper()
	list := &corev1.EventList{}
	e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
	types := map[string]string{}
	for i := range list.Items {
		types[list.Items[i].Reason] = list.Items[i].Type
	}
	return types
}
