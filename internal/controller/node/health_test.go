package node

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

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
			node := e.node()
			if test.reported {
				node.Annotations = map[string]string{labels.GPUHealth: "{}"}
			}
			if test.shown {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: labels.ConditionGPUHealthy})
			}
			s := &scope{Reconciler: e.reconciler, node: node, basis: &fleet.Basis{}, now: now}
			if test.inBackoff {
				s.entry.Writes.RetryAt = now.Add(1)
			}
			e.Expect(s.forgetHealth(t.Context(), test.shown)).To(Succeed())
			e.Expect(e.writes).To(Equal(test.writes))
			e.Expect(e.conditionWrites).To(Equal(test.conditionWrites))
		})
	}
}
