package nodediscovery_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/nodediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Pods that may patch every node are installed only if an admission policy restricts what they write.
func TestInstalledOnlyWithItsAdmissionPolicy(t *testing.T) {
	policyBinding := operand.Reference{Kind: operand.ValidatingAdmissionPolicyBinding, Name: labels.AgentPolicyBinding}
	exists, missing := map[operand.Reference]operand.Content{policyBinding: {}}, map[operand.Reference]operand.Content{}
	const bindingMissing = "node discovery is disabled because " +
		"ValidatingAdmissionPolicyBinding gpu-operator-node-agents is missing: " +
		"apply config/admission, or use Node Feature Discovery"
	off := operand.Decision{Choice: operand.Absent, Reason: v1.ReasonAdmissionPolicyMissing, Message: bindingMissing}
	nfd := operand.Decision{
		Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec,
		Message: "spec.nodeDiscovery.mode is nfd: Node Feature Discovery labels the nodes",
	}
	uses := []operand.Use{{Field: "spec.nodeDiscovery.mode", Reference: policyBinding}}
	tests := map[string]struct {
		mode     v1.DiscoveryMode
		contents map[operand.Reference]operand.Content
		want     operand.Decision
		uses     []operand.Use
	}{
		"by default, not read yet":  {uses: uses},
		"by default, it exists":     {contents: exists, uses: uses},
		"by default, it is missing": {contents: missing, want: off, uses: uses},
		"auto, it is missing":       {mode: v1.DiscoveryAuto, contents: missing, want: off, uses: uses},
		"builtin, not read yet":     {mode: v1.DiscoveryBuiltin, uses: uses},
		"builtin, it exists":        {mode: v1.DiscoveryBuiltin, contents: exists, uses: uses},
		"builtin, it is missing": {
			mode:     v1.DiscoveryBuiltin,
			contents: missing,
			want:     operand.Refuse(v1.ReasonAdmissionPolicyMissing, bindingMissing),
			uses:     uses,
		},
		"nfd, it exists":     {mode: v1.DiscoveryNFD, contents: exists, want: nfd},
		"nfd, it is missing": {mode: v1.DiscoveryNFD, contents: missing, want: nfd},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: test.mode}}
			in := operand.Input{Spec: effective.Of(spec), Contents: test.contents}
			o := nodediscovery.Operand()
			if diff := cmp.Diff(test.want, o.Decide(in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.uses, o.References(in)); diff != "" {
				t.Errorf("-want uses +got:\n%s", diff)
			}
		})
	}
}
