// Package pluginconfig derives from spec.devicePlugin what the device plugin, the MPS control daemon and GPU Feature
// Discovery have in common.
package pluginconfig

import (
	"path"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/mig"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Image is the image of the device plugin, which the MPS control daemon uses too.
func Image() image.Default {
	return image.Default{
		Name: "device-plugin", Variable: "DEVICE_PLUGIN_IMAGE", Field: "devicePlugin",
		Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
	}
}

// Of returns the configuration of an instance from spec.sharing or spec.devicePlugin.config, or nil if neither has one.
// process is the command of the instance's main process.
func Of(in operand.Input, process string) (*operand.PluginConfig, error) {
	spec := in.Spec.DevicePlugin
	if in.Spec.Sharing != nil {
		return ofSharing(in)
	}
	if spec.Config.Name == "" {
		return nil, nil //nolint:nilnil // Most clusters have no configuration.
	}
	key, _ := in.DefaultPluginConfig()
	return &operand.PluginConfig{ConfigMap: spec.Config.Name, Default: key, Process: process}, nil
}

// Uses returns the use of the ConfigMap with the device plugin's configurations.
func Uses(in operand.Input) []operand.Use {
	config := in.Spec.DevicePlugin.Config
	use := operand.ConfigMapUse("spec.devicePlugin.config.name", config.Name)
	if config.Default != "" {
		use.Keys = []string{config.Default}
	}
	use.Configures = true
	return []operand.Use{use}
}

// Varies reports whether a node pool overrides how GPUs are advertised: the MIG strategy, the sharing or the plugin's
// configuration.
func Varies(nodePool v1.NodePoolSpec) bool {
	plugin := nodePool.DevicePlugin
	return mig.Varies(nodePool) || nodePool.Sharing != nil ||
		plugin != nil && plugin.Config != nil && *plugin.Config != v1.NodePoolPluginConfigSpec{}
}

// Placement is the placement of the device plugin and of the MPS control daemon, which share a block of the spec.
func Placement(in operand.Input) operand.Placement {
	return operand.Placement{
		PlacementSpec: in.Spec.DevicePlugin.PlacementSpec, Field: "spec.devicePlugin", OtherContainers: pluginContainers,
	}
}

// pluginContainers are the containers that only one of the two has.
var pluginContainers = []string{"nvidia-device-plugin", "mps-control-daemon-mounts", "mps-control-daemon-ctr"}

// MPSPaths are the directories of the Multi-Process Service on the host.
type MPSPaths struct {
	// Root has the pipes and logs, SHM the shared memory.
	Root, SHM string
}

// MPSPathsOf returns the directories below spec.devicePlugin.mps.root.
func MPSPathsOf(in operand.Input) MPSPaths {
	root := in.Spec.DevicePlugin.MPS.Root
	return MPSPaths{Root: root, SHM: path.Join(root, "shm")}
}
