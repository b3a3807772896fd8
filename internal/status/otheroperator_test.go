package status

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// Every other status ends the report.
func TestOtherOperatorIsNoLongerReported(t *testing.T) {
	g := NewWithT(t)
	policy := &v1.ClusterPolicy{}
	policy.Status = conditions.OtherOperatorRunning(policy, "it runs")
	none := HaveEach(Not(HaveField("Reason", v1.ReasonOtherOperatorRunning)))
	g.Expect(Compute(policy, Input{Unassessed: 1}).Conditions).To(none, "nodes are being assessed")
	g.Expect(Compute(policy, Input{}).Conditions).To(none, "a pass failed")
	g.Expect(Ignored(policy, "gpu-operator", named("older")).Conditions).To(none)
	g.Expect(Removing(policy, Removal{}).Conditions).To(none)
}
