package operand_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestDefaultsOfTheSpec(t *testing.T) {
	type view struct {
		RuntimeClass string
		CDI, Refresh bool
	}
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want view
	}{
		"no blocks": {want: view{RuntimeClass: "nvidia", CDI: true}},
		"empty blocks": {
			spec: v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{}, CDI: &v1.CDISpec{}, MIG: &v1.MIGSpec{}},
			want: view{RuntimeClass: "nvidia", CDI: true},
		},
		"all set": {
			spec: v1.ClusterPolicySpec{
				Operator: &v1.OperatorSpec{RuntimeClass: "gpu", RefreshHelpers: new(true)},
				CDI:      &v1.CDISpec{Enabled: new(false)},
				MIG:      &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
			},
			want: view{RuntimeClass: "gpu", Refresh: true},
		},
		"the deprecated cdi.default has no effect": {
			spec: v1.ClusterPolicySpec{CDI: &v1.CDISpec{Default: new(false)}},
			want: view{RuntimeClass: "nvidia", CDI: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec)}
			got := view{in.RuntimeClass(), in.CDIEnabled(), in.RefreshHelpers()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOpenShift(t *testing.T) {
	g := NewWithT(t)
	layouts := func(distribution nodeinfo.Distribution) []nodeinfo.Layout {
		return nodeinfo.Layouts([]nodeinfo.Facts{{HasGPU: true, Runtime: "cri-o", Distribution: distribution}})
	}
	g.Expect(operand.Input{Layouts: layouts("openshift")}.OpenShift()).To(BeTrue())
	g.Expect(operand.Input{Layouts: layouts("")}.OpenShift()).To(BeFalse())
	g.Expect(operand.Input{}.OpenShift()).To(BeFalse())
}
