package mig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/mig"
)

func TestOf(t *testing.T) {
	tests := map[string]struct {
		spec *v1.MIGSpec
		want mig.Values
	}{
		"no block":    {want: mig.Values{MonitorMIG: true}},
		"empty block": {spec: &v1.MIGSpec{}, want: mig.Values{MonitorMIG: true}},
		"none": {
			spec: &v1.MIGSpec{Strategy: v1.MIGStrategyNone}, want: mig.Values{SetMIGStrategy: true, MIGStrategy: "none"},
		},
		"mixed": {
			spec: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
			want: mig.Values{SetMIGStrategy: true, MIGStrategy: "mixed", MonitorMIG: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := mig.Of(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{MIG: test.spec})})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
