package node

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
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
		return assess.Assessment{NodeVerdict: readiness.NodeVerdict{Stage: v1.StageDriver, Verdict: readiness.Verdict{
			State: readiness.Failed, Reason: "CrashLoopBackOff", Message: message, Detail: detail, Pod: "p",
		}}}
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
	ofAnother := failed("container x", "first attempt")
	ofAnother.Pod = "q"
	g.Expect(transition(at(1, "Starting"), ofAnother)).NotTo(Equal(one))
}

// A failure of the same cause is another one if another pod has another detail.
func TestFailureOfAnotherPod(t *testing.T) {
	for name, test := range map[string]struct {
		recorded, detail string
		shows            bool
	}{
		"another detail of the same pod":    {recorded: "p", detail: "e", shows: true},
		"another detail of another pod":     {recorded: "q", detail: "e"},
		"the same detail of another pod":    {recorded: "q", detail: "d", shows: true},
		"another detail, and no pod before": {detail: "e"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			record := assess.Record{Stage: v1.StageDriver, Pod: test.recorded}
			s.node.Annotations = map[string]string{labels.ReportRecord: *record.Annotation()}
			s.entry.Report.Assessment = assess.Assessment{NodeVerdict: readiness.NodeVerdict{
				Stage: v1.StageDriver, Verdict: readiness.Verdict{
					State: readiness.Failed, Reason: v1.ReasonFailedMount, Message: "m", Detail: test.detail, Pod: "p",
				},
			}}
			before := &corev1.NodeCondition{
				Status: "False", Reason: v1.ReasonFailedMount, Message: "a: stage Driver: m: d",
			}
			after := s.entry.Report.Condition("a")
			_, due := s.eventFor(before, &after)
			g.Expect(due).To(Equal(!test.shows))
			g.Expect(s.showsFailure(before, &after)).To(Equal(test.shows))
		})
	}
}

// What the condition that is replaced says of the node, and what it does not.
func TestWhatAConditionSays(t *testing.T) {
	is := func(status corev1.ConditionStatus, reason string) *corev1.NodeCondition {
		return &corev1.NodeCondition{Status: status, Reason: reason, Message: "a: stage Driver: m: d"}
	}
	const duplicate, crashes, off = v1.ReasonDuplicateDevicePlugin, "CrashLoopBackOff", v1.ReasonExcluded
	ready := is("True", v1.ReasonGPUReady)
	otherMessage := is("False", crashes)
	otherMessage.Message = "x"
	for name, test := range map[string]struct {
		before, after           *corev1.NodeCondition
		written                 bool
		takenAway, over, failed bool
		shows                   bool
	}{
		"no condition":                  {after: is("False", off), written: true},
		"ready, and excluded":           {before: ready, after: is("False", off), takenAway: true},
		"ready, and failed":             {before: ready, after: is("False", crashes)},
		"failed, and excluded":          {before: is("False", crashes), after: is("False", off), failed: true, shows: true},
		"failed with another message":   {before: otherMessage, after: ready, failed: true},
		"ready with the reason":         {before: is("True", crashes), after: ready, written: true},
		"excluded, and ready":           {before: is("False", off), after: ready, over: true},
		"duplicate, and ready":          {before: is("True", duplicate), after: ready, over: true},
		"duplicate, and another reason": {before: is("True", duplicate), after: is("True", "x")},
		"starting":                      {before: is("False", v1.ReasonStarting), after: ready},
		"overdue":                       {before: is("False", v1.ReasonStarting), after: ready, written: true, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), &scope{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			s.entry.Writes.FailureWritten = test.written
			s.entry.Report.Assessment = assess.Assessment{NodeVerdict: readiness.NodeVerdict{
				Stage: v1.StageDriver, Verdict: readiness.Verdict{State: readiness.Failed, Reason: crashes, Message: "m"},
			}}
			g.Expect(isTakenAway(test.before, test.after)).To(Equal(test.takenAway))
			g.Expect(isOver(test.before, test.after)).To(Equal(test.over))
			g.Expect(s.hadFailed(test.before)).To(Equal(test.failed))
			g.Expect(s.showsCause(test.before)).To(Equal(test.shows))
		})
	}
}

// A neighbour has an Event for each message, also if the node was ready before.
func TestEventOfANeighbour(t *testing.T) {
	g, s := NewWithT(t), &scope{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}}
	after := &corev1.NodeCondition{Status: "True", Reason: v1.ReasonDuplicateDevicePlugin, Message: "m"}
	before := &corev1.NodeCondition{Status: "True", Reason: "R", LastTransitionTime: metav1.NewTime(now)}
	event, due := s.eventFor(before, after)
	g.Expect(due).To(BeTrue())
	g.Expect(event).To(Equal(events.Event{
		Regarding: s.regarding(), Type: corev1.EventTypeWarning, Reason: v1.ReasonDuplicateDevicePlugin, Message: "m",
		Transition: "True R since 2026-03-01 12:00:00 +0000 UTC > m",
	}))
}

// The stages of a starting node last before they are written, and so do missing labels of a ready one.
func TestStagesThatMustDwell(t *testing.T) {
	for name, test := range map[string]struct {
		state  readiness.State
		reason string
		before corev1.ConditionStatus
		want   bool
	}{
		"the first":              {readiness.Progressing, v1.ReasonStarting, "", true},
		"another":                {readiness.Progressing, v1.ReasonStarting, "False", true},
		"of a ready node":        {readiness.Progressing, v1.ReasonStarting, "True", false},
		"a failure":              {readiness.Failed, "CrashLoopBackOff", "", false},
		"labels of a ready node": {readiness.Failed, v1.ReasonDiscoveryLabelsMissing, "True", true},
	} {
		s, before := &scope{}, &corev1.NodeCondition{Status: test.before}
		if test.before == "" {
			before = nil
		}
		s.entry.Report.State, s.entry.Report.Reason = test.state, test.reason
		NewWithT(t).Expect(s.mustDwell(before)).To(Equal(test.want), name)
	}
}

// A condition is one write with an Event, if one is due. What it says of a failure is kept, also as it was written
// before a restart, and a stage that waited is dropped.
func TestConditionIsWritten(t *testing.T) {
	earlier := metav1.NewTime(now.Add(-time.Hour))
	report := assess.Report{Assessment: assess.Assessment{
		Since: now.Add(-time.Minute), NodeVerdict: readiness.NodeVerdict{Stage: v1.StageDriver, Verdict: readiness.Verdict{
			State: readiness.Failed, Reason: "CrashLoopBackOff", Message: "m",
		}},
	}}
	wanted := report.Condition("a")
	wanted.LastHeartbeatTime = metav1.NewTime(now)
	event := "Warning CrashLoopBackOff of v1 Node a u: " + wanted.Message
	is := func(status corev1.ConditionStatus) *corev1.NodeCondition {
		return &corev1.NodeCondition{
			Type: labels.ConditionGPUReady, Status: status, Reason: "x", LastTransitionTime: earlier,
		}
	}
	for name, test := range map[string]struct {
		before *corev1.NodeCondition
		since  metav1.Time
		fails  error
		want   []string
	}{
		"the first":      {since: metav1.NewTime(report.Since), want: []string{event}},
		"another status": {before: is("True"), since: metav1.NewTime(report.Since), want: []string{event}},
		"another reason": {before: is("False"), since: earlier, want: []string{event}},
		"the same":       {before: &wanted},
		"an error":       {fails: errors.New("refused"), want: []string{event}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			if test.before != nil {
				e.putCondition(*test.before)
			}
			e.updateNode(func(node *corev1.Node) {
				node.Annotations = map[string]string{labels.ReportRecord: *report.Record(assess.Record{}).Annotation()}
			})
			s := e.scope(func(s *scope) {
				s.entry.Report = report
				s.entry.Writes = fleet.Writes{Stage: "x", StageSince: now, StageDwell: time.Second, NextDwell: time.Second}
			})
			e.patchErr = test.fails
			err := s.writeCondition(t.Context())
			e.Expect(e.events()).To(Equal(test.want))
			if test.fails != nil {
				e.Expect(err).To(MatchError("patching condition of node a: refused"))
				e.Expect(s.entry.Writes.FailureWritten).To(BeFalse())
				return
			}
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(s.entry.Writes.FailureWritten).To(BeTrue())
			e.Expect(s.entry.Writes.Stage).To(BeEmpty())
			e.Expect(s.entry.Writes.StageSince).To(BeZero())
			e.Expect(s.entry.Writes.StageDwell).To(BeZero())
			e.Expect(e.conditionWrites).To(Equal(len(test.want)))
			if test.want != nil {
				want := wanted
				want.LastTransitionTime = test.since
				e.Expect(e.condition(labels.ConditionGPUReady)).To(Equal(want))
				e.Expect(s.entry.Writes.NextDwell).To(BeZero())
			}
		})
	}
}
