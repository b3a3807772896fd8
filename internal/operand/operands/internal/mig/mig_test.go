package mig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/mig"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
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

func TestVaries(t *testing.T) {
	for name, test := range map[string]struct {
		spec *v1.MIGSpec
		want bool
	}{
		"no block": {}, "an empty block": {spec: &v1.MIGSpec{}},
		"a strategy": {spec: &v1.MIGSpec{Strategy: v1.MIGStrategySingle}, want: true},
	} {
		if got := mig.Varies(v1.NodePoolSpec{MIG: test.spec}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAddTo(t *testing.T) {
	strategy := corev1.EnvVar{Name: "MIG_STRATEGY", Value: "a"}
	monitor := corev1.EnvVar{Name: "NVIDIA_MIG_MONITOR_DEVICES", Value: "all"}
	for _, test := range []struct {
		values mig.Values
		want   operand.Env
	}{
		{values: mig.Values{MIGStrategy: "a"}},
		{mig.Values{SetMIGStrategy: true, MIGStrategy: "a"}, operand.Env{strategy}},
		{mig.Values{MonitorMIG: true}, operand.Env{monitor}},
		{mig.Values{SetMIGStrategy: true, MIGStrategy: "a", MonitorMIG: true}, operand.Env{strategy, monitor}},
	} {
		var env operand.Env
		test.values.AddTo(&env)
		if diff := cmp.Diff(test.want, env); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
