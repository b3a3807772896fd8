package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// reporting returns the entry of a node with this reported state.
func reporting(state readiness.State) *fleet.Entry {
	entry := &fleet.Entry{}
	entry.Report.State = state
	return entry
}

func TestNodeEvent(t *testing.T) {
	is := func(status corev1.ConditionStatus, reason, message string) *corev1.NodeCondition {
		return &corev1.NodeCondition{Status: status, Reason: reason, Message: message}
	}
	ready := is("True", "GPUReady", "a: GPUs can be used")
	starting := is("False", "Starting", "a: stage Driver, operand driver: the pod is starting")
	late := is("False", "Starting", "a: stage Driver, operand driver: not ready after 30m: the pod is starting")
	crashing := is(
		"False", "CrashLoopBackOff", "a: stage Driver, operand driver: container x: CrashLoopBackOff, exit code 1",
	)
	tests := map[string]struct {
		before, after *corev1.NodeCondition
		// failed: the entry has recorded that the present condition is a failure.
		failed bool
		state  readiness.State
		// want is type and reason; empty for no Event.
		want string
	}{
		"joins":              {after: starting, state: readiness.Progressing},
		"joins and fails":    {after: crashing, state: readiness.Failed, want: "Warning CrashLoopBackOff"},
		"joins and is ready": {after: ready},
		"gets ready":         {before: starting, after: ready},
		"is late":            {before: starting, after: late, state: readiness.Failed, want: "Warning Starting"},
		"gets ready, late":   {before: late, failed: true, after: ready, want: "Normal GPUReady"},
		"fails": {
			before: ready,
			after:  crashing,
			state:  readiness.Failed,
			want:   "Warning CrashLoopBackOff",
		},
		"recovers":                 {before: crashing, failed: true, after: ready, want: "Normal GPUReady"},
		"recovers after a restart": {before: crashing, after: ready, want: "Normal GPUReady"},
		"starts after a failure":   {before: crashing, failed: true, after: starting, state: readiness.Progressing},
		"is excluded": {before: ready, after: is("False", "Excluded", "a: x"), state: readiness.Progressing,
			want: "Warning Excluded"},
		"loses its device plugin": {before: ready, after: is("False", "DevicePluginOff", "a: x"),
			state: readiness.Progressing, want: "Warning DevicePluginOff"},
		"is excluded before it was ready": {before: starting, after: is("False", "Excluded", "a: x"),
			state: readiness.Progressing},
		"is not ready any more":     {before: ready, after: starting, state: readiness.Progressing},
		"is ready, and is outdated": {before: ready, after: is("True", "UpgradePending", "a: GPUs can be used; x")},
		"has no other device plugin any more": {
			before: is("True", "DuplicateDevicePlugin", "a: x"), after: ready, want: "Normal GPUReady",
		},
		"has another reason than the other device plugin": {
			before: is("True", "DuplicateDevicePlugin", "a: x"), after: is("True", "GPUPodsRefused", "a: y"),
		},
		"is excluded no longer": {before: is("False", "Excluded", "a: label"), after: ready, want: "Normal GPUReady"},
		"is paused no longer":   {before: is("False", "OperandPaused", "a: label"), after: ready},
		"answers again": {
			before: is("False", "NodeUnreachable", "a: stage Discovered: the kubelet stopped posting node status"),
			after:  ready,
			want:   "Normal GPUReady",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{
				node:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}},
				entry: *reporting(test.state),
			}
			s.entry.Writes.FailureWritten = test.failed
			event, due := s.eventFor(test.before, test.after)
			g.Expect(due).To(Equal(test.want != ""))
			if due {
				g.Expect(event.Type + " " + event.Reason).To(Equal(test.want))
				g.Expect(event.Message).To(Equal(test.after.Message))
				g.Expect(event.Regarding).
					To(Equal(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "a", UID: "u"}))
			}
		})
	}
}

// TestTransitions: each transition of a node has its own Event; a changed message alone has none.
func TestTransitions(t *testing.T) {
	g := NewWithT(t)
	failed := func(message, detail string) assess.Assessment {
		return assess.Assessment{NodeVerdict: readiness.NodeVerdict{
			Stage:   v1.StageDriver,
			Verdict: readiness.Verdict{State: readiness.Failed, Reason: "CrashLoopBackOff", Message: message, Detail: detail},
		}}
	}
	transition := func(before *corev1.NodeCondition, assessment assess.Assessment) string {
		s := &scope{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		s.entry.Report.Assessment = assessment
		after := assessment.Condition("a")
		event, _ := s.eventFor(before, &after)
		return event.Transition
	}
	at := func(t int64, reason string) *corev1.NodeCondition {
		return &corev1.NodeCondition{
			Status:             "False",
			Reason:             reason,
			LastTransitionTime: metav1.NewTime(time.Unix(t, 0)),
		}
	}
	one := transition(at(1, "Starting"), failed("container x", "first attempt"))
	g.Expect(transition(at(1, "Starting"), failed("container x", "second attempt"))).To(Equal(one))
	g.Expect(transition(at(1, "Starting"), failed("container y", "first attempt"))).NotTo(Equal(one))
	g.Expect(transition(at(2, "Starting"), failed("container x", "first attempt"))).
		NotTo(Equal(one), "it was ready in between")
	g.Expect(transition(at(1, "PodMissing"), failed("container x", "first attempt"))).NotTo(Equal(one))
	g.Expect(transition(nil, failed("container x", "first attempt"))).NotTo(Equal(one))
}
