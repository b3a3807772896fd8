package statuswriter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
)

var ofPolicy = corev1.ObjectReference{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "cp", UID: "u"}

// A policy has an Event when it becomes degraded, when the reason changes, and when it recovers.
func TestPolicyEvents(t *testing.T) {
	g := NewWithT(t)
	status := func(degraded metav1.ConditionStatus, reason, ready, message string) v1.ClusterPolicyStatus {
		conditions := []metav1.Condition{
			{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: ready, Message: message},
			{Type: v1.ConditionDegraded, Status: degraded, Reason: reason},
		}
		if degraded == metav1.ConditionTrue {
			conditions[0].Status, conditions[1].Message = metav1.ConditionFalse, message
		}
		return v1.ClusterPolicyStatus{Conditions: conditions}
	}
	failed := func(node string) v1.ClusterPolicyStatus {
		message := "1 of 3 GPU nodes have failed: " + node + " (Driver: CrashLoopBackOff)"
		return status(metav1.ConditionTrue, "OperandFailed", "OperandFailed", message)
	}
	healthy := status(metav1.ConditionFalse, "None", "Reconciled", "3 of 3 GPU nodes are ready")
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
	_, changed := policyEvent(policy, healthy)
	g.Expect(changed).To(BeFalse(), "healthy from the start")
	event, changed := policyEvent(policy, failed("node-00001"))
	g.Expect(changed).To(BeTrue())
	g.Expect(event).To(Equal(events.Event{
		Regarding: ofPolicy, Type: "Warning", Reason: "OperandFailed",
		Message: "1 of 3 GPU nodes have failed: node-00001 (Driver: CrashLoopBackOff)",
	}))
	policy.Status = failed("node-00001")
	policy.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now)
	_, changed = policyEvent(policy, failed("node-00002"))
	g.Expect(changed).To(BeFalse(), "it is degraded already")
	event, changed = policyEvent(policy, healthy)
	g.Expect(changed).To(BeTrue())
	g.Expect(event).To(Equal(events.Event{
		Regarding: ofPolicy, Type: "Normal", Reason: "Reconciled",
		Message:    "no longer degraded: 3 of 3 GPU nodes are ready",
		Transition: "True OperandFailed since 1970-01-12 13:46:40 +0000 UTC",
	}))
	event, changed = policyEvent(policy, status(metav1.ConditionTrue, "ReconcileFailed", "ReconcileFailed", "timeout"))
	g.Expect(changed).To(BeTrue(), "degraded for another reason")
	g.Expect(event).To(And(HaveField("Type", "Warning"), HaveField("Reason", "ReconcileFailed"),
		HaveField("Message", "timeout")))
}

// An operand that no node reports has an Event when it begins to fail, unless the Event of the policy says the same.
func TestOperandEvents(t *testing.T) {
	g := NewWithT(t)
	failing := func(name string) v1.OperandStatus {
		return v1.OperandStatus{Name: name, State: v1.OperandDegraded, Reason: "ApplyFailed", Message: "no answer"}
	}
	after := v1.ClusterPolicyStatus{Operands: []v1.OperandStatus{
		failing("new"), failing("before"), failing("reported"), failing("of-nodes"), {Name: "ready", State: v1.OperandReady},
	}}
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u", ResourceVersion: "7"},
		Status: v1.ClusterPolicyStatus{Operands: []v1.OperandStatus{
			failing("before"), {Name: "new", State: v1.OperandReady},
		}},
	}
	found := operandEvents(policy, after, sets.New("new", "before", "reported", "ready"), "reported: no answer")
	g.Expect(found).To(Equal([]events.Event{{
		Regarding: ofPolicy, Type: "Warning", Reason: "ApplyFailed", Message: "new: no answer",
		Transition: "operand new fails after version 7",
	}}))
}

// Components with known vulnerabilities have an Event when the condition appears, and none for each further node.
func TestOutdatedEvents(t *testing.T) {
	g := NewWithT(t)
	outdated := func(message string) v1.ClusterPolicyStatus {
		return v1.ClusterPolicyStatus{Conditions: []metav1.Condition{
			{Type: v1.ConditionOutdatedComponent, Status: metav1.ConditionTrue, Message: message},
		}}
	}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u", Generation: 2}}
	_, appeared := outdatedEvent(policy, v1.ClusterPolicyStatus{})
	g.Expect(appeared).To(BeFalse())
	event, appeared := outdatedEvent(policy, outdated("driver 580.95.05 (on a)"))
	g.Expect(appeared).To(BeTrue())
	g.Expect(event).To(Equal(events.Event{
		Regarding: ofPolicy, Type: "Warning", Reason: "OutdatedComponent", Message: "driver 580.95.05 (on a)",
		Transition: "outdated in generation 2",
	}))
	policy.Status = outdated("driver 580.95.05 (on a)")
	_, appeared = outdatedEvent(policy, outdated("driver 580.95.05 (on 2 nodes: a, b)"))
	g.Expect(appeared).To(BeFalse())
}

// recorded returns the Events that the API server has, as text, sorted.
func (f *fixture) recorded() []string {
	f.t.Helper()
	list := &corev1.EventList{}
	if err := f.client.List(f.t.Context(), list); err != nil {
		f.t.Fatal(err)
	}
	var found []string
	for i := range list.Items {
		e := &list.Items[i]
		found = append(found, fmt.Sprintf("%s %s %s %s: %s %s: %s", e.InvolvedObject.APIVersion, e.InvolvedObject.Kind,
			e.InvolvedObject.Name, e.InvolvedObject.UID, e.Type, e.Reason, e.Message))
	}
	slices.Sort(found)
	return found
}

// Another controller that repeats its edit gets one Event for each object, field and manager. Each edit that may have
// removed pods has its own.
func TestRepeatedEdits(t *testing.T) {
	f := newFixture(t)
	repair := drift.Repair{Object: "ConfigMap a", Field: "data.a", Manager: "other"}
	record := func(change func(*drift.Repair)) {
		for version := range 3 {
			another := repair
			another.Version = strconv.Itoa(version)
			change(&another)
			f.writer.RecordRepair(t.Context(), f.read(), &another)
		}
	}
	const of = "nvidia.com/v1 ClusterPolicy cp u: Warning "
	record(func(*drift.Repair) {})
	if got := f.recorded(); !slices.Equal(got, []string{of + "EditReverted: " + repair.String()}) {
		t.Fatalf("Events of one edit, repeated: %q", got)
	}
	record(func(r *drift.Repair) { r.Object = "ConfigMap b" })
	record(func(r *drift.Repair) { r.Field = "data.b" })
	record(func(r *drift.Repair) { r.Manager = "" })
	record(func(r *drift.Repair) { r.Placement = true })
	reasons := map[string]int{}
	for _, event := range f.recorded() {
		reason, _, _ := strings.Cut(strings.TrimPrefix(event, of), ":")
		reasons[reason]++
	}
	if reasons["EditReverted"] != 4 || reasons["PlacementRepaired"] != 3 {
		t.Errorf("Events: %v", reasons)
	}
}

// What a pass finds out beyond the status has one Event for each time that it begins.
func TestRecords(t *testing.T) {
	for name, test := range map[string]struct {
		record func(w *Writer, generation int64)
		want   string
		// once: it begins only once.
		once bool
	}{
		"frozen": {
			record: func(w *Writer, generation int64) {
				policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
				w.RecordFrozen(t.Context(), policy, "CRDOutdated", "is old", strconv.FormatInt(generation, 10))
			},
			want: "nvidia.com/v1 ClusterPolicy cp u: Warning CRDOutdated: is old",
		},
		"undecodable": {
			record: func(w *Writer, generation int64) {
				driver := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "d", Generation: generation}}
				w.RecordUndecodable(t.Context(), v1alpha1.NVIDIADriverKind, driver, "spec.a is a list")
			},
			want: "nvidia.com/v1alpha1 NVIDIADriver a d: Warning Undecodable: spec.a is a list",
		},
		"removal": {
			record: func(w *Writer, _ int64) {
				w.RecordRemoval(t.Context(), &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}})
			},
			want: "nvidia.com/v1 ClusterPolicy cp u: Normal Removing: the stack is being removed from all nodes: keep the " +
				"operator until this policy is gone. If the operator is gone before, install it again, or remove the rest: " +
				"kubectl gpu cleanup",
			once: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			test.record(f.writer, 1)
			test.record(f.writer, 1)
			want := []string{test.want}
			if got := f.recorded(); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			test.record(f.writer, 2)
			if !test.once {
				want = append(want, test.want)
			}
			if got := f.recorded(); !slices.Equal(got, want) {
				t.Errorf("after it has begun again: got  %q\nwant %q", got, want)
			}
		})
	}
}

// A write records what it changes: the policy, components, and an operand that no stage depends on.
func TestWritesRecordEvents(t *testing.T) {
	f := newFixture(t)
	status := counted(1, v1.StateNotReady)
	status.Conditions = []metav1.Condition{
		{Type: v1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: "OperandFailed", Message: "1 of 3"},
		{Type: v1.ConditionOutdatedComponent, Status: metav1.ConditionTrue, Message: "driver"},
	}
	for _, name := range []string{"driver", "dcgm"} {
		status.Operands = append(status.Operands, v1.OperandStatus{
			Name: name, State: v1.OperandDegraded, Reason: "ApplyFailed", Message: "no answer",
		})
	}
	if wrote, _ := f.write(status); !wrote {
		t.Fatal("did not write")
	}
	const of = "nvidia.com/v1 ClusterPolicy cp u: Warning "
	want := []string{of + "ApplyFailed: dcgm: no answer", of + "OperandFailed: 1 of 3", of + "OutdatedComponent: driver"}
	if got := f.recorded(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	status.NodeSummary.Ready++
	if wrote, _ := f.write(status); !wrote {
		t.Fatal("did not write again")
	}
	if got := f.recorded(); !slices.Equal(got, want) {
		t.Errorf("of what is as before: got  %q\nwant %q", got, want)
	}
}
