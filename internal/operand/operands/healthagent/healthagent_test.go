package healthagent_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/healthagent"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// The agent is off by default, and its pods, which may patch every node, need the policy that limits them.
func TestDecide(t *testing.T) {
	binding := operand.Reference{
		Kind: operand.ValidatingAdmissionPolicyBinding, Name: labels.AgentPolicyBinding,
	}
	exists, missing := map[operand.Reference]operand.Content{binding: {}}, map[operand.Reference]operand.Content{}
	const off = "DisabledBySpec: spec.health.agent.enabled is not true"
	tests := map[string]struct {
		enabled  *bool
		contents map[operand.Reference]operand.Content
		want     string
		uses     int
	}{
		"by default":       {contents: exists, want: off},
		"off":              {enabled: new(false), contents: exists, want: off},
		"on":               {enabled: new(true), contents: exists, want: ": ", uses: 1},
		"on, not read yet": {enabled: new(true), want: ": ", uses: 1},
		"on, and without policies": {
			enabled: new(true), contents: missing, uses: 1,
			want: "AdmissionPolicyMissing: the health agent is disabled because " +
				"ValidatingAdmissionPolicyBinding gpu-operator-node-agents is missing: apply config/admission",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := operand.Input{Contents: test.contents, Spec: effective.Of(v1.ClusterPolicySpec{
				Health: &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: test.enabled}},
			})}
			decision := healthagent.Operand().Decide(in)
			g.Expect(decision.Reason + ": " + decision.Message).To(Equal(test.want))
			g.Expect(healthagent.Operand().References(in)).To(HaveLen(test.uses))
		})
	}
}
