package pluginconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/pluginconfig"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// The configuration has the keys that the device plugin reads, and no others: it ignores unknown ones silently.
func TestSharing(t *testing.T) {
	tests := map[string]struct {
		spec string
		want string
	}{
		"an empty block":               {spec: `{sharing: {}}`},
		"time slices without replicas": {spec: `{sharing: {timeSlicing: {resourceReplicas: [{name: nvidia.com/gpu}]}}}`},
		"MPS without replicas":         {spec: `{sharing: {mps: {}}}`},
		"one share is none":            {spec: `{sharing: {timeSlicing: {replicas: 1}}}`},
		"MIG devices like whole GPUs": {
			spec: `{sharing: {timeSlicing: {replicas: 4, resourceReplicas: [{name: nvidia.com/mig-1g.10gb}]}}}`,
			want: `
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}, {name: nvidia.com/mig-1g.10gb, replicas: 4}]}`,
		},
		"time slices": {spec: `{sharing: {timeSlicing: {replicas: 4}}}`, want: `
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}`},
		"time slices with all options": {
			spec: `{sharing: {timeSlicing: {replicas: 4, renameByDefault: true, failRequestsGreaterThanOne: false}}}`,
			want: `
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources: [{name: nvidia.com/gpu, replicas: 4}]`,
		},
		"MIG devices and whole GPUs": {
			spec: `{mig: {strategy: mixed},
  sharing: {timeSlicing: {replicas: 2, resourceReplicas: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}}`,
			want: `
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}, {name: nvidia.com/mig-1g.10gb, replicas: 4}]}`,
		},
		"MIG devices alone": {
			spec: `{sharing: {timeSlicing: {resourceReplicas: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}}`,
			want: `
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}`,
		},
		"an entry for whole GPUs takes precedence": {
			spec: `{sharing: {timeSlicing: {replicas: 2, resourceReplicas: [{name: nvidia.com/gpu, replicas: 8}]}}}`,
			want: `
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}`,
		},
		"MPS": {spec: `{sharing: {mps: {replicas: 10, failRequestsGreaterThanOne: false}}}`, want: `
version: v1
sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 10}]}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := pluginconfig.Of(sharing(t, test.spec), "program")
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if got != nil {
					t.Errorf("got %+v", got)
				}
				return
			}
			if diff := cmp.Diff(decoded(t, test.want), decoded(t, got.Content)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.ConfigMap != "" || got.Process != "" {
				t.Errorf("a content needs no config-manager: %+v", got)
			}
		})
	}
}

func TestMPSCannotShareMIGDevices(t *testing.T) {
	const want = "spec.sharing.mps: MPS cannot share GPUs with mig.strategy mixed: use timeSlicing"
	_, err := pluginconfig.Of(sharing(t, `{mig: {strategy: mixed}, sharing: {mps: {replicas: 2}}}`), "program")
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func sharing(t *testing.T, spec string) operand.Input {
	t.Helper()
	var decoded v1.ClusterPolicySpec
	if err := yaml.UnmarshalStrict([]byte(spec), &decoded); err != nil {
		t.Fatal(err)
	}
	return operand.Input{Spec: effective.Of(decoded)}
}

func decoded(t *testing.T, document string) map[string]any {
	t.Helper()
	var found map[string]any
	if err := yaml.Unmarshal([]byte(document), &found); err != nil {
		t.Fatal(err)
	}
	return found
}
