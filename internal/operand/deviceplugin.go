package operand

import (
	"cmp"
	"path"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// PluginConfig has an instance read one of the device plugin's configurations, the one that its node
// chooses: render adds NVIDIA's config-manager to its pods.
type PluginConfig struct {
	// ConfigMap holds the configurations, one in each key.
	ConfigMap string
	// Default is the key for nodes that choose none; empty for an empty configuration.
	Default string
	// Image and PullPolicy of config-manager: those of the device plugin, which holds it.
	Image, PullPolicy string
	// Process is the name that the program of the main container is started by, as config-manager finds
	// it among the processes of the pod: its argv[0], to the letter. It gets SIGHUP when the node chooses
	// another configuration.
	Process string
}

// MPSPaths are the directories of the Multi-Process Service on the hosts.
type MPSPaths struct {
	// Root holds pipes and logs, SHM the shared memory.
	Root, SHM string
}

// DevicePlugin is spec.devicePlugin, which several operands read: the plugin itself, GPU Feature
// Discovery and the daemon of the Multi-Process Service.
func (in Input) DevicePlugin() v1.DevicePluginSpec {
	if in.Spec.DevicePlugin == nil {
		return v1.DevicePluginSpec{}
	}
	return *in.Spec.DevicePlugin
}

// PluginConfig is what the instance whose main process is started by that name is given of
// spec.devicePlugin.config; nil where that names no ConfigMap. It fails on an image that contradicts
// itself.
func (in Input) PluginConfig(process string) (*PluginConfig, error) {
	spec := in.DevicePlugin()
	if spec.Config == nil || spec.Config.Name == "" {
		return nil, nil //nolint:nilnil // No configuration is what most clusters have.
	}
	ref, err := image.Resolve(image.DevicePlugin, spec.ImageSpec, "")
	if err != nil {
		return nil, err
	}
	return &PluginConfig{
		ConfigMap:  spec.Config.Name,
		Default:    spec.Config.Default,
		Image:      ref.Image,
		PullPolicy: image.PullPolicy(spec.ImageSpec),
		Process:    process,
	}, nil
}

// PluginConfigUses are the uses of the ConfigMap with the device plugin's configurations.
func PluginConfigUses(in Input) []Use {
	config := v1.DevicePluginConfigSpec{}
	if in.DevicePlugin().Config != nil {
		config = *in.DevicePlugin().Config
	}
	use := ConfigMapUse("spec.devicePlugin.config.name", config.Name)
	if config.Default != "" {
		use.Keys = []string{config.Default}
	}
	return []Use{use}
}

// MPSPaths fills the default into spec.devicePlugin.mps.root.
func (in Input) MPSPaths() MPSPaths {
	root := labels.MPSRoot
	if mps := in.DevicePlugin().MPS; mps != nil {
		root = cmp.Or(mps.Root, root)
	}
	return MPSPaths{Root: root, SHM: path.Join(root, "shm")}
}
