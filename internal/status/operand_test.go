package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// An operand without which GPUs can be used is told with the policy alone, and so with all that is known.
func TestAnOperandBesideTheLadderFailsWithItsLastWords(t *testing.T) {
	const cause = "fails on 2 of 2 nodes: node-00000 (container main: CrashLoopBackOff, exit code 1), " +
		"node-00001 (container main: CrashLoopBackOff, exit code 1)"
	b := newBed(t, 2)
	b.fail(0, "dcgm-exporter", "")
	b.fail(1, "dcgm-exporter", "attempt 1")
	first := b.status()
	if got, want := operandOf(t, first, "dcgm-exporter").Message, cause+": node-00001 says: attempt 1"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	tests := map[string]struct {
		change func()
		want   string
	}{
		"the next attempt is no news":      {change: func() { b.fail(1, "dcgm-exporter", "attempt 2") }, want: cause + ": node-00001 says: attempt 1"},
		"neither is one that says nothing": {change: func() { b.fail(1, "dcgm-exporter", "") }, want: cause + ": node-00001 says: attempt 1"},
		"another cause is": {
			change: func() { b.start(0, "dcgm-exporter"); b.fail(1, "dcgm-exporter", "attempt 3") },
			want:   "fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): node-00001 says: attempt 3",
		},
		"nothing is left of it when it starts well": {
			change: func() { b.start(0, "dcgm-exporter"); b.start(1, "dcgm-exporter") },
			want:   "ready on 0/2 nodes: node-00000 (container main is not ready), node-00001 (container main is not ready)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b.fail(0, "dcgm-exporter", "")
			test.change()
			if got := operandOf(t, b.status(first), "dcgm-exporter").Message; got != test.want {
				t.Errorf("the message is %q, want %q", got, test.want)
			}
		})
	}
}

// Why fewer nodes run an operand than need it is said of each, and nothing is advised that does not help.
func TestAnOperandThatIsNotScheduledOnAllNodes(t *testing.T) {
	unreachable := []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
	silent := func(b *bed, i int) {
		b.snapshot.Nodes[i].Object.Status.Conditions[0].Status = corev1.ConditionUnknown
		b.snapshot.Nodes[i].Object.Spec.Taints = unreachable
	}
	tests := map[string]struct {
		change func(*bed)
		want   string
	}{
		"a node is silent": {
			change: func(b *bed) { silent(b, 1) }, want: "scheduled on 2 of 3 nodes: node-00001 (NodeUnreachable)",
		},
		"a node is silent, and its pod is gone": {
			change: func(b *bed) { silent(b, 1); b.snapshot.Pods["node-00001"] = nil }, want: "scheduled on 2 of 3 nodes: node-00001 (NodeUnreachable)",
		},
		"a node is tainted": {
			change: func(b *bed) {
				b.snapshot.Nodes[2].Object.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
				delete(b.snapshot.Pods["node-00002"], "driver")
			},
			want: "kept off 1 of 3 nodes: node-00002 (UntoleratedTaint)",
		},
		"a pod is not there yet": {
			change: func(b *bed) { delete(b.snapshot.Pods["node-00000"], "driver") },
			want:   "scheduled on 2 of 3 nodes: node-00000 (PodMissing)",
		},
		"the DaemonSet controller counts otherwise": {change: func(*bed) {}, want: "scheduled on 2 of 3 nodes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 3)
			test.change(b)
			b.snapshot.DaemonSets["driver"].Status.DesiredNumberScheduled = 2
			got := operandOf(t, b.status(), "driver")
			if got.Reason != v1.ReasonNotScheduled || got.Message != test.want {
				t.Errorf("%s: %q, want %q", got.Reason, got.Message, test.want)
			}
		})
	}
}
