package labels_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestIsFeature(t *testing.T) {
	for key, want := range map[string]bool{
		"nvidia.com/gfd.timestamp":                           true,
		"nvidia.com/gpu.count":                               true,
		"nvidia.com/gpu.product":                             true,
		"nvidia.com/gpu.clique":                              true,
		"nvidia.com/gpu.compute.major":                       true,
		"nvidia.com/gpu.slices.gi":                           true,
		"nvidia.com/gpu.engines.copy":                        true,
		"nvidia.com/gpu.sharing-strategy":                    true,
		"nvidia.com/cuda.driver-version.full":                true,
		"nvidia.com/cuda.runtime.major":                      true,
		"nvidia.com/mig.capable":                             true,
		"nvidia.com/mig.strategy":                            true,
		"nvidia.com/mig-1g.10gb.me.count":                    true,
		"nvidia.com/mps.capable":                             true,
		"nvidia.com/vgpu.present":                            true,
		"nvidia.com/vgpu.host-driver-version":                true,
		"nvidia.com/gpu.present":                             false,
		"nvidia.com/gpu.deploy.driver":                       false,
		"nvidia.com/gpu.workload.config":                     false,
		"nvidia.com/gpu-operator.pool":                       false,
		"nvidia.com/gpu-operator.discovered-labels":          false,
		"nvidia.com/gpu-driver-upgrade-state":                false,
		"nvidia.com/gpu-driver-upgrade.skip":                 false,
		"nvidia.com/mig.config":                              false,
		"nvidia.com/mig.config.state":                        false,
		"nvidia.com/vgpu.config":                             false,
		"nvidia.com/vgpu.config.state":                       false,
		"nvidia.com/device-plugin.config":                    false,
		"nvidia.com/cc.mode":                                 false,
		"nvidia.com/gpu.product.x":                           false,
		"nvidia.com/gpu.countless":                           false,
		"nvidia.com/cuda.":                                   false,
		"x.nvidia.com/gpu.count":                             false,
		"nvidiaxcom/gpu.count":                               false,
		"kubernetes.io/hostname":                             false,
		"node-role.kubernetes.io/control-plane":              false,
		"feature.node.kubernetes.io/nvidia.com/gpu.count":    false,
		"nvidia.com/gpu.count\nnvidia.com/gpu.deploy.driver": false,
		"": false,
	} {
		if got := labels.IsFeature(key); got != want {
			t.Errorf("IsFeature(%q) = %t, want %t", key, got, want)
		}
	}
}
