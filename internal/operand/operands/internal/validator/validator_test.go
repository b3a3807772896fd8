package validator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/validator"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestEnv(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "1"}}
	tests := map[string]struct {
		spec *v1.ValidatorSpec
		want map[string][]v1.EnvVar
	}{
		"no block": {want: map[string][]v1.EnvVar{"driver-validation": nil, "toolkit-validation": nil}},
		"empty block": {
			spec: &v1.ValidatorSpec{},
			want: map[string][]v1.EnvVar{"driver-validation": nil, "toolkit-validation": nil},
		},
		"one check": {
			spec: &v1.ValidatorSpec{Driver: &v1.ValidatorComponentSpec{Env: env}},
			want: map[string][]v1.EnvVar{"driver-validation": env, "toolkit-validation": nil},
		},
		"a check of another pod is omitted": {
			spec: &v1.ValidatorSpec{Plugin: &v1.ValidatorComponentSpec{Env: env}},
			want: map[string][]v1.EnvVar{"driver-validation": nil, "toolkit-validation": nil},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Validator: test.spec})}
			got := validator.Env(in, "driver-validation", "toolkit-validation")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Validator: &v1.ValidatorSpec{
		CUDA:   &v1.ValidatorComponentSpec{Env: env},
		Plugin: &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "B", Value: "2"}}},
	}})}
	want := map[string][]v1.EnvVar{"cuda-validation": env, "plugin-validation": {{Name: "B", Value: "2"}}}
	if diff := cmp.Diff(want, validator.Env(in, "cuda-validation", "plugin-validation")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
