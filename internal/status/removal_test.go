package status

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// While a policy is being removed, its status says nothing about vulnerabilities: no pass looks at versions any more.
func TestRemovingKeepsNoConditionOfComponents(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, 2)
	e.spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580.95.05"}}
	policy := newPolicy(e.spec)
	policy.Status = e.status()
	g.Expect(conditionsOf(policy.Status)).To(HaveKey(v1.ConditionOutdatedComponent))
	status := Removing(policy, Removal{Namespace: namespace, Left: e.input().View.Nodes})
	g.Expect(conditionsOf(status)).To(And(
		HaveKeyWithValue("Ready", "False Removing"), Not(HaveKey(v1.ConditionOutdatedComponent)),
	))
}

// Nodes that do not go on by themselves are listed and named first.
func TestRemoving(t *testing.T) {
	node := func(name string, step *removal.Step, writeError string) *fleet.Entry {
		entry := &fleet.Entry{WriteError: writeError}
		entry.Facts.Name, entry.Facts.Pool = name, "p"
		if step != nil {
			entry.Removal = &fleet.NodeRemoval{Step: *step}
		}
		return entry
	}
	waits := &removal.Step{Action: removal.Wait, Message: "waits"}
	left := []*fleet.Entry{
		node("a", waits, ""), node("b", nil, ""), node("c", waits, ""),
		node("held", &removal.Step{Action: removal.Hold, Message: "held by x"}, ""),
		node("refused", waits, "no answer"),
		node("failed", &removal.Step{Action: removal.Wait, Failed: true, Message: "busy"}, ""),
	}
	listed := func(name, reason, message string) v1.NodeStatus {
		return v1.NodeStatus{Name: name, Stage: "Discovered", Pool: "p", Reason: reason, Message: message}
	}
	policy := newPolicy(v1.ClusterPolicySpec{})
	policy.Generation = 4
	policy.Status.NodeSummary = &v1.NodeSummary{Total: 9}
	got := Removing(policy, Removal{Namespace: namespace, Left: left})
	summary := got.NodeSummary
	if want := (v1.NodeSummary{
		Total: 9, Progressing: 4, Degraded: 2, Listed: 6, ReadyOfTotal: "0/9",
	}); *summary != want {
		t.Errorf("the summary is %+v", summary)
	}
	if got.Namespace != namespace || got.ObservedGeneration != 4 || got.State != v1.StateNotReady {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]v1.NodeStatus{
		listed("refused", "RemovalFailed", "no answer"), listed("failed", "RemovalFailed", "busy"),
		listed("held", "RemovalHeld", "held by x"),
		listed("a", "Removing", "waits"), listed("b", "Removing", ""), listed("c", "Removing", "waits"),
	}, got.Nodes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	g := NewWithT(t)
	g.Expect(conditionsOf(got)).To(And(HaveKeyWithValue("Ready", "False RemovalFailed"),
		HaveKeyWithValue("Progressing", "True Removing"), HaveKeyWithValue("Degraded", "True RemovalFailed")))
	g.Expect(conditionsOf(Removing(policy, Removal{Left: left[:3]}))).To(And(HaveKeyWithValue("Ready", "False Removing"),
		HaveKeyWithValue("Progressing", "True Removing"), HaveKeyWithValue("Degraded", HavePrefix("False "))))
	message := func(in Removal) string { return ready(Removing(policy, in)).Message }
	for want, in := range map[string]Removal{
		"removing the stack: 6 of 9 nodes left; refused: no answer; failed: busy; held: held by x; and 3 more": {
			Left: left,
		},
		"removing the stack: 3 of 9 nodes left; a: waits; c: waits":              {Left: left[:3]},
		"removing the stack: no node is left, and its objects are being deleted": {},
		"removing the stack: timeout":                                            {Left: left, Err: errors.New("timeout")},
	} {
		if got := message(in); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	if got := Removing(newPolicy(v1.ClusterPolicySpec{}), Removal{Left: left}).NodeSummary.Total; got != 6 {
		t.Errorf("%d nodes in all, before any were counted", got)
	}
}
