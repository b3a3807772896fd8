package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The status of a node does not report auxiliary operands, so that the operand's message has the detail.
func TestAuxiliaryOperandMessageHasDetail(t *testing.T) {
	const cause = "fails on 2 of 2 nodes: node-00000 (container main: CrashLoopBackOff, exit code 1), " +
		"node-00001 (container main: CrashLoopBackOff, exit code 1)"
	e := newEnv(t, 2)
	e.failPod(0, "dcgm-exporter", "")
	e.failPod(1, "dcgm-exporter", "attempt 1")
	first := e.status()
	const want = cause + ": on node-00001: attempt 1"
	if got := operandOf(t, first, "dcgm-exporter").Message; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	tests := map[string]struct {
		change func()
		want   string
	}{
		"the next attempt does not change it": {change: func() { e.failPod(1, "dcgm-exporter", "attempt 2") }, want: want},
		"neither does one without output":     {change: func() { e.failPod(1, "dcgm-exporter", "") }, want: want},
		"another cause does": {
			change: func() { e.startPod(0, "dcgm-exporter"); e.failPod(1, "dcgm-exporter", "attempt 3") },
			want: "fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): " +
				"on node-00001: attempt 3",
		},
		"pods that start again do": {
			change: func() { e.startPod(0, "dcgm-exporter"); e.startPod(1, "dcgm-exporter") },
			want: "ready on 0 of 2 nodes: node-00000 (container main is not ready), " +
				"node-00001 (container main is not ready)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e.failPod(0, "dcgm-exporter", "")
			test.change()
			if got := operandOf(t, e.status(first), "dcgm-exporter").Message; got != test.want {
				t.Errorf("the message is %q, want %q", got, test.want)
			}
		})
	}
}

// Each node that needs the operand and does not run it is named with the reason.
func TestOperandNotScheduledOnAllNodes(t *testing.T) {
	unreachable := []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
	silent := func(e *env, i int) {
		e.snapshot.Nodes[i].Object.Status.Conditions[0].Status = corev1.ConditionUnknown
		e.snapshot.Nodes[i].Object.Spec.Taints = unreachable
	}
	tests := map[string]struct {
		change func(*env)
		want   string
	}{
		"a node is unreachable": {
			change: func(e *env) { silent(e, 1) }, want: "scheduled on 2 of 3 nodes: node-00001 (NodeUnreachable)",
		},
		"a node is unreachable, and its pod is deleted": {
			change: func(e *env) { silent(e, 1); e.snapshot.Pods["node-00001"] = nil },
			want:   "scheduled on 2 of 3 nodes: node-00001 (NodeUnreachable)",
		},
		"a node is tainted": {
			change: func(e *env) {
				e.snapshot.Nodes[2].Object.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
				delete(e.snapshot.Pods["node-00002"], "driver")
			},
			want: "not scheduled on 1 of 3 nodes: node-00002 (UntoleratedTaint)",
		},
		"a pod is missing": {
			change: func(e *env) { delete(e.snapshot.Pods["node-00000"], "driver") },
			want:   "scheduled on 2 of 3 nodes: node-00000 (PodMissing)",
		},
		"the DaemonSet controller counts fewer nodes, and a pod is starting": {
			change: func(e *env) { e.startPod(0, "driver") },
			want:   "scheduled on 2 of 3 nodes",
		},
		"the DaemonSet controller has not observed the DaemonSet": {
			change: func(e *env) { e.snapshot.DaemonSets["driver"].Generation++ }, want: "scheduled on 2 of 3 nodes",
		},
		"the DaemonSet controller has not counted the last pod yet": {change: func(*env) {}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 3)
			test.change(e)
			e.snapshot.DaemonSets["driver"].Status.DesiredNumberScheduled = 2
			got := operandOf(t, e.status(), "driver")
			reason := v1.ReasonNotScheduled
			if test.want == "" {
				reason = ""
			}
			if got.Reason != reason || got.Message != test.want {
				t.Errorf("%s: %q, want %q", got.Reason, got.Message, test.want)
			}
		})
	}
}
