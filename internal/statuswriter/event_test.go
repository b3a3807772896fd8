package statuswriter

import (
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/drift"
	"github.com/clusterpolicy/gpu-operator/internal/events"
)

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
	g.Expect(event).To(And(
		HaveField("Type", "Warning"), HaveField("Reason", "OperandFailed"), HaveField("Regarding.Kind", "ClusterPolicy"),
		HaveField("Message", "1 of 3 GPU nodes have failed: node-00001 (Driver: CrashLoopBackOff)"),
	))
	policy.Status = failed("node-00001")
	_, changed = policyEvent(policy, failed("node-00002"))
	g.Expect(changed).To(BeFalse(), "it is degraded already")
	event, changed = policyEvent(policy, healthy)
	g.Expect(changed).To(BeTrue())
	g.Expect(event).To(And(
		HaveField("Type", "Normal"), HaveField("Reason", "Reconciled"),
		HaveField("Message", "no longer degraded: 3 of 3 GPU nodes are ready"),
	))
	event, changed = policyEvent(policy, status(metav1.ConditionTrue, "ReconcileFailed", "ReconcileFailed", "timeout"))
	g.Expect(changed).To(BeTrue(), "degraded for another reason")
	g.Expect(event).To(And(HaveField("Type", "Warning"), HaveField("Reason", "ReconcileFailed")))
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
		Regarding: corev1.ObjectReference{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "cp", UID: "u"},
		Type:      "Warning", Reason: "ApplyFailed", Message: "new: no answer",
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
	g.Expect(event).To(And(HaveField("Type", "Warning"), HaveField("Reason", "OutdatedComponent"),
		HaveField("Regarding.Kind", "ClusterPolicy"), HaveField("Message", "driver 580.95.05 (on a)")))
	policy.Status = outdated("driver 580.95.05 (on a)")
	_, appeared = outdatedEvent(policy, outdated("driver 580.95.05 (on 2 nodes: a, b)"))
	g.Expect(appeared).To(BeFalse())
}

// Another controller that repeats its edit gets one Event for each object, field and manager. Each edit that may have
// removed pods has its own.
func TestRepeatedEdits(t *testing.T) {
	f := newFixture(t)
	reasons := func() map[string]int {
		list := &corev1.EventList{}
		if err := f.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for i := range list.Items {
			found[list.Items[i].Reason]++
		}
		return found
	}
	repair := drift.Repair{Object: "ConfigMap a", Field: "data.a", Manager: "other"}
	record := func(change func(*drift.Repair)) {
		for version := range 3 {
			another := repair
			another.Version = strconv.Itoa(version)
			change(&another)
			f.writer.RecordRepair(t.Context(), f.read(), &another)
		}
	}
	record(func(*drift.Repair) {})
	if got := reasons(); got["EditReverted"] != 1 {
		t.Fatalf("Events of one edit, repeated: %v", got)
	}
	record(func(r *drift.Repair) { r.Object = "ConfigMap b" })
	record(func(r *drift.Repair) { r.Field = "data.b" })
	record(func(r *drift.Repair) { r.Manager = "" })
	record(func(r *drift.Repair) { r.Placement = true })
	if got := reasons(); got["EditReverted"] != 4 || got["PlacementRepaired"] != 3 {
		t.Errorf("Events: %v", got)
	}
}
