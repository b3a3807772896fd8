package operand_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
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

// By what GPUs are injected follows from the spec and the container runtimes of the nodes.
func TestInjection(t *testing.T) {
	type view struct {
		Paused, OwnToolkit, DCGM, NRI, OnlyCRIO, ByHook, PodSecurity bool

		PodRuntimeClass string
	}
	crio := nodeinfo.Layout{Runtime: nodeinfo.RuntimeCRIO}
	containerd := nodeinfo.Layout{Runtime: nodeinfo.RuntimeContainerd}
	spec := func(others, cdi, nri bool) v1.ClusterPolicySpec {
		return v1.ClusterPolicySpec{
			Paused: new(others), Toolkit: &v1.ToolkitSpec{Enabled: new(others)}, DCGM: &v1.DCGMSpec{Enabled: new(others)},
			PSA: &v1.PSASpec{Enabled: new(others)}, CDI: &v1.CDISpec{Enabled: new(cdi), NRIPluginEnabled: new(nri)},
		}
	}
	tests := map[string]struct {
		spec    v1.ClusterPolicySpec
		layouts []nodeinfo.Layout
		want    view
	}{
		"all on": {spec: spec(true, true, true), layouts: []nodeinfo.Layout{containerd}, want: view{
			Paused: true, OwnToolkit: true, DCGM: true, NRI: true, PodSecurity: true,
		}},
		"all off":     {spec: spec(false, false, false), want: view{PodRuntimeClass: "nvidia"}},
		"without NRI": {spec: spec(false, true, false), want: view{PodRuntimeClass: "nvidia"}},
		"NRI has no effect without CDI": {spec: spec(false, false, true), layouts: []nodeinfo.Layout{containerd},
			want: view{PodRuntimeClass: "nvidia"}},
		"CRI-O": {spec: spec(false, true, false), layouts: []nodeinfo.Layout{crio, crio},
			want: view{OnlyCRIO: true, PodRuntimeClass: "nvidia"}},
		"CRI-O without CDI": {spec: spec(false, false, false), layouts: []nodeinfo.Layout{crio},
			want: view{OnlyCRIO: true, ByHook: true}},
		"two runtimes": {spec: spec(false, false, false), layouts: []nodeinfo.Layout{crio, containerd},
			want: view{PodRuntimeClass: "nvidia"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), Layouts: test.layouts}
			NewWithT(t).Expect(view{
				in.Paused(), in.OwnToolkit(), in.DCGMEnabled(), in.NRIEnabled(), in.OnlyCRIO(), in.InjectsByHook(),
				in.PodSecurity(), in.PodRuntimeClass(),
			}).To(Equal(test.want))
		})
	}
}

func TestHelperSpec(t *testing.T) {
	validator := &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{Image: "helper"}}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Validator: validator})}
	NewWithT(t).Expect(in.HelperSpec().Image).To(BeEquivalentTo("helper"))
}
