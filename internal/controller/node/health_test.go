package node

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// What is done with a node is added to its faults. Before that is known, the condition waits only if it has the same
// faults with an action.
func TestActionInTheHealthCondition(t *testing.T) {
	is := func(status corev1.ConditionStatus, reason, message string) *corev1.NodeCondition {
		return &corev1.NodeCondition{Status: status, Reason: reason, Message: message}
	}
	shown := is("False", "R", "ab; x")
	for name, test := range map[string]struct {
		// text is the verdict on the node; nil if none is known.
		text      *string
		before    *corev1.NodeCondition
		faultsEnd int
		healthy   bool
		// want is the message, empty if the condition is not due; and end is where its faults end.
		want string
		end  int
	}{
		"unknown, and shown with an action": {before: shown, faultsEnd: 2},
		"unknown, and shown without one":    {before: shown, want: "ab"},
		"unknown, with another end":         {before: shown, faultsEnd: 100, want: "ab"},
		"unknown, and new":                  {faultsEnd: 2, want: "ab"},
		"unknown, with another status":      {before: is("Unknown", "R", "ab; x"), faultsEnd: 2, want: "ab"},
		"unknown, with another reason":      {before: is("False", "S", "ab; x"), faultsEnd: 2, want: "ab"},
		"unknown, with other faults":        {before: is("False", "R", "ac; x"), faultsEnd: 2, want: "ab"},
		"unknown, and healthy":              {before: is("True", "R", "ab; x"), faultsEnd: 2, healthy: true, want: "ab"},
		"an action":                         {before: shown, text: new("tainted"), want: "ab; tainted", end: 2},
		"no action":                         {before: shown, text: new(""), want: "ab"},
		"the end of an action":              {before: shown, text: new("tainted"), healthy: true, want: "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{
				Reconciler: New(Options{Fleet: fleet.New()}), node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			}
			if test.text != nil {
				s.Fleet.SetHealthActions(map[string]healthaction.Verdict{"a": {Text: *test.text}, "b": {Text: "cordoned"}})
			}
			after := is("False", "R", "ab")
			if test.healthy {
				after.Status = corev1.ConditionTrue
			}
			end, due := s.addAction(test.before, after, assess.Record{FaultsEnd: test.faultsEnd})
			g.Expect(due).To(Equal(test.want != ""))
			g.Expect(end).To(Equal(test.end))
			if due {
				g.Expect(after.Message).To(Equal(test.want))
			}
		})
	}
}

// Each difference of the condition or of its record is one write. The time of the transition is that of the status.
func TestHealthConditionIsWritten(t *testing.T) {
	latest := assess.Assessment{Health: &assess.Health{Report: gpuhealth.Report{Faults: []gpuhealth.Fault{
		{PCI: "0000:1b:00.0", Class: gpuhealth.Reset, Reason: "NVLinkError", Xid: 74, Since: now},
	}}}}
	faults := latest.HealthCondition("a").Message
	earlier := metav1.NewTime(now.Add(-time.Hour))
	shown := corev1.NodeCondition{
		Type: labels.ConditionGPUHealthy, Status: corev1.ConditionFalse, Reason: "NVLinkError",
		Message: faults + "; tainted", LastHeartbeatTime: earlier, LastTransitionTime: earlier,
	}
	record := fmt.Sprintf(`{"faultsEnd":%d}`, len(faults))
	wanted := []string{"Warning NVLinkError of v1 Node a u: " + shown.Message}
	with := func(change func(*corev1.NodeCondition)) *corev1.NodeCondition {
		changed := shown
		change(&changed)
		return &changed
	}
	for name, test := range map[string]struct {
		before   *corev1.NodeCondition
		record   string
		retryAt  time.Time
		patchErr error
		// unknown: it is not known yet what is done with the node.
		unknown bool
		// written: there is one write, with the transition then.
		written bool
		since   metav1.Time
	}{
		"the same":  {before: &shown, record: record},
		"the first": {record: record, written: true, since: metav1.NewTime(now)},
		"another status": {
			before: with(func(c *corev1.NodeCondition) { c.Status = corev1.ConditionTrue }), record: record,
			written: true, since: metav1.NewTime(now),
		},
		"another reason": {
			before: with(func(c *corev1.NodeCondition) { c.Reason = "X" }), record: record, written: true, since: earlier,
		},
		"another message": {
			before: with(func(c *corev1.NodeCondition) { c.Message = "x" }), record: record, written: true, since: earlier,
		},
		"an unknown action":  {before: &shown, record: record, unknown: true},
		"another record":     {before: &shown, written: true, since: earlier},
		"during a back-off":  {record: record, retryAt: now.Add(1)},
		"a write that fails": {record: record, patchErr: errors.New("refused"), written: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			if test.before != nil {
				e.putCondition(*test.before)
			}
			e.updateNode(func(node *corev1.Node) { node.Annotations = map[string]string{labels.ReportRecord: test.record} })
			if !test.unknown {
				e.fleet.SetHealthActions(map[string]healthaction.Verdict{"a": {Text: "tainted"}})
			}
			s := e.scope(func(s *scope) { s.entry.Latest, s.entry.Writes.RetryAt = latest, test.retryAt })
			e.patchErr = test.patchErr
			err := s.writeHealth(t.Context())
			if !test.written {
				e.Expect(err).NotTo(HaveOccurred())
				e.Expect(e.writes).To(BeZero())
				e.Expect(e.events()).To(BeEmpty())
				return
			}
			e.Expect(e.conditionWrites).To(Equal(1))
			e.Expect(e.events()).To(Equal(wanted))
			if test.patchErr != nil {
				e.Expect(err).To(MatchError("patching condition of node a: refused"))
				return
			}
			e.Expect(err).NotTo(HaveOccurred())
			want := shown
			want.LastHeartbeatTime, want.LastTransitionTime = metav1.NewTime(now), test.since
			e.Expect(e.condition(labels.ConditionGPUHealthy)).To(Equal(want))
			e.Expect(e.node().Annotations).To(HaveKeyWithValue(labels.ReportRecord, record))
		})
	}
}

// Each other set of faults has an Event, and so has the end of all.
func TestHealthEvent(t *testing.T) {
	g := NewWithT(t)
	s := &scope{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}}
	of := func(status corev1.ConditionStatus) *corev1.NodeCondition {
		if status == "" {
			return nil
		}
		return &corev1.NodeCondition{Status: status, Reason: "R", Message: "ab", LastTransitionTime: metav1.NewTime(now)}
	}
	for _, before := range []corev1.ConditionStatus{"", "True", "False", "Unknown"} {
		for after, kind := range map[corev1.ConditionStatus]string{
			"True": "Normal", "False": "Warning", "Unknown": "Warning",
		} {
			event, due := s.healthEvent(of(before), of(after))
			g.Expect(due).To(Equal(after == "False" || after == "True" && before == "False"), "%s > %s", before, after)
			g.Expect(event).To(Equal(events.Event{
				Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "a", UID: "u"},
				Type:      kind, Reason: "R", Message: "ab", Transition: transition(of(before)) + " > ab",
			}))
		}
	}
}

// What the agent has noted since the last look has an Event, but not what it noted while no operator ran.
func TestHealthNotesHaveAnEvent(t *testing.T) {
	health := func(notes ...gpuhealth.Note) *assess.Health {
		return &assess.Health{Report: gpuhealth.Report{Notes: notes}}
	}
	one := gpuhealth.Note{PCI: "0000:1b:00.0", Class: gpuhealth.App, Reason: "PageFault", Xid: 31, Since: now}
	other := one
	other.Since = now.Add(2 * time.Minute)
	seen := &fleet.Entry{Latest: assess.Assessment{At: now, Health: health()}}
	want := "Warning PageFault of v1 Node a u: a: PageFault: " + one.Text()
	paused := plan.Decide(nil, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Paused: new(true)})})
	for name, test := range map[string]struct {
		previous  *fleet.Entry
		decisions *plan.Decisions
		latest    []gpuhealth.Note
		want      []string
	}{
		"a note":               {previous: seen, latest: []gpuhealth.Note{one}, want: []string{want}},
		"none":                 {previous: seen},
		"a start":              {latest: []gpuhealth.Note{one}},
		"a node not looked at": {previous: &fleet.Entry{}, latest: []gpuhealth.Note{one}},
		"a paused policy":      {previous: seen, decisions: paused, latest: []gpuhealth.Note{one}},
		"one that was there": {
			previous: &fleet.Entry{Latest: assess.Assessment{At: now, Health: health(one)}}, latest: []gpuhealth.Note{one},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.scope(func(s *scope) {
				s.previous, s.basis = test.previous, &fleet.Basis{Decisions: test.decisions}
				s.entry.Latest.Health = health(test.latest...)
			})
			s.recordNotes(t.Context())
			e.Expect(e.events()).To(Equal(test.want))
			if test.want == nil {
				return
			}
			s.entry.Latest.Health = health(other)
			s.recordNotes(t.Context())
			e.Expect(e.events()).To(ConsistOf(want, want), "two notes are two Events")
		})
	}
}

// What is left of a health agent is removed, each of it only if it is there, and nothing during a back-off.
func TestForgetHealth(t *testing.T) {
	for name, test := range map[string]struct {
		reported, shown, inBackoff bool
		writes, conditionWrites    int
	}{
		"nothing":           {},
		"a report":          {reported: true, writes: 1},
		"a condition":       {shown: true, writes: 1, conditionWrites: 1},
		"both":              {reported: true, shown: true, writes: 2, conditionWrites: 1},
		"during a back-off": {reported: true, shown: true, inBackoff: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			want := map[string]string{labels.ReportRecord: `{"heldConfig":"x","faultsEnd":2}`}
			e.updateNode(func(node *corev1.Node) {
				node.Annotations = maps.Clone(want)
				if test.reported {
					node.Annotations[labels.GPUHealth] = "{}"
				}
			})
			if test.shown {
				e.putCondition(corev1.NodeCondition{Type: labels.ConditionGPUHealthy})
			}
			before := e.node()
			s := e.scope(func(*scope) {})
			if test.inBackoff {
				s.entry.Writes.RetryAt = now.Add(1)
				want[labels.GPUHealth] = "{}"
			} else if test.shown {
				want[labels.ReportRecord] = `{"heldConfig":"x"}`
			}
			e.Expect(s.forgetHealth(t.Context(), test.shown)).To(Succeed())
			e.Expect(e.node().Annotations).To(Equal(want))
			e.Expect(assess.GPUHealthyCondition(e.node()) != nil).To(Equal(test.inBackoff))
			e.Expect(e.writes).To(Equal(test.writes))
			e.Expect(e.conditionWrites).To(Equal(test.conditionWrites))
			if e.patchErr = errors.New("refused"); test.writes > 0 {
				e.Expect(e.scope(func(s *scope) { s.node = before }).forgetHealth(t.Context(), test.shown)).
					To(MatchError(ContainSubstring("refused")))
			}
		})
	}
}
