package pluginconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/pluginconfig"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func plugin(spec v1.DevicePluginSpec) operand.Input {
	return operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{DevicePlugin: &spec})}
}

func TestPluginConfig(t *testing.T) {
	tests := map[string]struct {
		in   operand.Input
		want *operand.PluginConfig
	}{
		"no block":        {in: operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}},
		"an empty block":  {in: plugin(v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{}})},
		"a default alone": {in: plugin(v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Default: "a"}})},
		"a name is enough": {
			in: plugin(v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}}),
			want: &operand.PluginConfig{
				ConfigMap: "configs",
				Process:   "program",
			},
		},
		"a default": {
			in: plugin(v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs", Default: "a"}}),
			want: &operand.PluginConfig{
				ConfigMap: "configs",
				Default:   "a",
				Process:   "program",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := pluginconfig.Of(test.in, "program")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMPSPaths(t *testing.T) {
	tests := map[string]struct {
		in   operand.Input
		want pluginconfig.MPSPaths
	}{
		"no block": {
			in:   operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})},
			want: pluginconfig.MPSPaths{Root: "/run/nvidia/mps", SHM: "/run/nvidia/mps/shm"},
		},
		"an empty block": {
			in:   plugin(v1.DevicePluginSpec{MPS: &v1.MPSSpec{}}),
			want: pluginconfig.MPSPaths{Root: "/run/nvidia/mps", SHM: "/run/nvidia/mps/shm"},
		},
		"a root": {
			in:   plugin(v1.DevicePluginSpec{MPS: &v1.MPSSpec{Root: "/var/mps/"}}),
			want: pluginconfig.MPSPaths{Root: "/var/mps/", SHM: "/var/mps/shm"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, pluginconfig.MPSPathsOf(test.in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A node pool gets DaemonSets of its own if it overrides how GPUs are advertised.
func TestVaries(t *testing.T) {
	config := func(config *v1.NodePoolPluginConfigSpec) v1.NodePoolSpec {
		return v1.NodePoolSpec{DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: config}}
	}
	for name, test := range map[string]struct {
		pool v1.NodePoolSpec
		want bool
	}{
		"nothing":         {},
		"no config":       {pool: config(nil)},
		"an empty config": {pool: config(&v1.NodePoolPluginConfigSpec{})},
		"a config":        {pool: config(&v1.NodePoolPluginConfigSpec{Default: "a"}), want: true},
		"sharing":         {pool: v1.NodePoolSpec{Sharing: &v1.SharingSpec{}}, want: true},
		"a MIG strategy":  {pool: v1.NodePoolSpec{MIG: &v1.MIGSpec{Strategy: "mixed"}}, want: true},
	} {
		if got := pluginconfig.Varies(test.pool); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
