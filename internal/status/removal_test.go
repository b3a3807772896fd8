package status

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
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
