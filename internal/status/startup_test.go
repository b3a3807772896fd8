package status

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// A node is not ready while it has a start-up taint. An earlier cause is reported first; the operator ignores other
// taints.
func TestNodesWithStartupTaints(t *testing.T) {
	starting := corev1.Taint{Key: "example.com/starting", Value: "now", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "team", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		taints          []corev1.Taint
		change          func(*env)
		usable, ready   bool
		stage           v1.Stage
		reason, message string
	}{
		"none":      {usable: true, ready: true, stage: v1.StageValidated},
		"of others": {taints: []corev1.Taint{other}, usable: true, ready: true, stage: v1.StageValidated},
		"the start-up taint": {
			taints: []corev1.Taint{other, starting}, usable: true, stage: v1.StageValidated, reason: "StartupTaint",
			message: "start-up taint example.com/starting is still set: add it to the chart's nodeStartup.taints, " +
				"or to ownTaints of ValidatingAdmissionPolicy gpu-operator-operator; " +
				"the GPUs can be used, but the operator may remove only the taints listed there",
		},
		"the start-up taint of a node that starts": {
			taints:  []corev1.Taint{starting},
			change:  func(e *env) { e.startPod(0, "driver") },
			stage:   v1.StageDriver,
			reason:  "Starting",
			message: "container main is not ready",
		},
		"the start-up taint of a node that fails": {
			taints:  []corev1.Taint{starting},
			change:  func(e *env) { e.failPod(0, "driver", "boom") },
			stage:   v1.StageDriver,
			reason:  "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 1",
		},
		"the start-up taint of an excluded node": {
			taints: []corev1.Taint{starting}, change: func(e *env) { e.setLabel(0, "nvidia.com/gpu.deploy.operands", "false") },
			stage: v1.StageDiscovered, reason: "Excluded", message: `label nvidia.com/gpu.deploy.operands is "false"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, 1)
			e.spec = v1.ClusterPolicySpec{
				NodeStartup: &v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: starting.Key, Effect: starting.Effect}}},
			}
			e.snapshot.Nodes[0].Object.Spec.Taints = test.taints
			if test.change != nil {
				test.change(e)
			}
			found := e.input().View.Nodes[0].Latest
			g.Expect(found.Usable).To(Equal(test.usable))
			g.Expect(found.Stage).To(Equal(test.stage))
			g.Expect(found.Reason).To(Equal(test.reason))
			g.Expect(found.Message).To(Equal(test.message))
			g.Expect(e.status().Nodes[0].Ready).To(Equal(test.ready))
		})
	}
}
