package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// How many pods share a GPU of a node is what its device plugin reads: of the spec, or of the key that its label names.
func TestGPUReplicas(t *testing.T) {
	configured := &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "shares", Default: "four"}}
	slices := func(sharing v1.TimeSlicingSpec) *v1.SharingSpec { return &v1.SharingSpec{TimeSlicing: &sharing} }
	for name, test := range map[string]struct {
		spec  v1.ClusterPolicySpec
		label string
		want  int
	}{
		"nothing shares": {},
		"spec.sharing":   {v1.ClusterPolicySpec{Sharing: slices(v1.TimeSlicingSpec{Replicas: 3})}, "", 3},
		"MPS": {
			v1.ClusterPolicySpec{Sharing: &v1.SharingSpec{MPS: &v1.MPSSharingSpec{Replicas: 5}}}, "", 5,
		},
		"the default key":                {v1.ClusterPolicySpec{DevicePlugin: configured}, "", 4},
		"the key of the label":           {v1.ClusterPolicySpec{DevicePlugin: configured}, "two", 2},
		"a key that shares nothing":      {v1.ClusterPolicySpec{DevicePlugin: configured}, "whole", 0},
		"spec.sharing beside a selected": {v1.ClusterPolicySpec{Sharing: slices(v1.TimeSlicingSpec{Replicas: 3})}, "two", 3},
		"an entry for whole GPUs": {v1.ClusterPolicySpec{Sharing: slices(v1.TimeSlicingSpec{
			Replicas: 3, ResourceReplicas: []v1.ResourceReplicasSpec{{Name: "nvidia.com/gpu", Replicas: 6}},
		})}, "", 6},
	} {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), Contents: map[operand.Reference]operand.Content{
				{Kind: operand.ConfigMap, Name: "shares"}: {
					Keys: []string{"four", "two", "whole"}, Replicas: map[string]int{"four": 4, "two": 2},
				},
			}}
			if got := in.GPUReplicas(test.label); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
