// Package pluginconfig holds what the device plugin, the daemon of the Multi-Process Service and GPU Feature Discovery
// read from spec.devicePlugin.
package pluginconfig

import (
	"path"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/mig"
)

// Image is the image of the device plugin, which the daemon of the Multi-Process Service and config-manager run, too.
func Image() image.Default {
	return image.Default{
		Name: "device-plugin", Field: "devicePlugin",
		Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
	}
}

// Of is what the instance whose main process is started by that name is given of
// spec.devicePlugin.config; nil where that names no ConfigMap. It fails on an image that contradicts
// itself.
func Of(in operand.Input, process string) (*operand.PluginConfig, error) {
	spec := in.Spec.DevicePlugin
	if spec.Config.Name == "" {
		return nil, nil //nolint:nilnil // No configuration is what most clusters have.
	}
	ref, err := Image().Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, err
	}
	return &operand.PluginConfig{
		ConfigMap:  spec.Config.Name,
		Default:    spec.Config.Default,
		Image:      ref.Image,
		PullPolicy: string(spec.ImagePullPolicy),
		Process:    process,
	}, nil
}

// Uses are the uses of the ConfigMap with the device plugin's configurations.
func Uses(in operand.Input) []operand.Use {
	config := in.Spec.DevicePlugin.Config
	use := operand.ConfigMapUse("spec.devicePlugin.config.name", config.Name)
	if config.Default != "" {
		use.Keys = []string{config.Default}
	}
	return []operand.Use{use}
}

// Varies tells whether a pool says something else of how GPUs are offered: the device plugin, and what reads its
// configuration.
func Varies(pool v1.NodePoolSpec) bool {
	plugin := pool.DevicePlugin
	return mig.Varies(pool) || plugin != nil && plugin.Config != nil && *plugin.Config != v1.NodePoolPluginConfigSpec{}
}

// Placement is that of the device plugin and of the daemon of the Multi-Process Service, which one
// block of the spec is for.
func Placement(in operand.Input) operand.Placement {
	return operand.Placement{
		PlacementSpec: in.Spec.DevicePlugin.PlacementSpec, Field: "spec.devicePlugin", OtherContainers: pluginContainers,
	}
}

// pluginContainers are those that only one of the two has.
var pluginContainers = []string{"nvidia-device-plugin", "mps-control-daemon-mounts", "mps-control-daemon-ctr"}

// MPSPaths are the directories of the Multi-Process Service on the hosts.
type MPSPaths struct {
	// Root holds pipes and logs, SHM the shared memory.
	Root, SHM string
}

// MPSPathsOf are those below spec.devicePlugin.mps.root.
func MPSPathsOf(in operand.Input) MPSPaths {
	root := in.Spec.DevicePlugin.MPS.Root
	return MPSPaths{Root: root, SHM: path.Join(root, "shm")}
}
