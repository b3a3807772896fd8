package operand

import (
	"path"
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

// PluginConfig is what the instance whose main process is started by that name is given of
// spec.devicePlugin.config; nil where that names no ConfigMap. It fails on an image that contradicts
// itself.
func (in Input) PluginConfig(process string) (*PluginConfig, error) {
	spec := in.Spec.DevicePlugin
	if spec.Config.Name == "" {
		return nil, nil //nolint:nilnil // No configuration is what most clusters have.
	}
	ref, err := DevicePluginImage().Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, err
	}
	return &PluginConfig{
		ConfigMap:  spec.Config.Name,
		Default:    spec.Config.Default,
		Image:      ref.Image,
		PullPolicy: string(spec.ImagePullPolicy),
		Process:    process,
	}, nil
}

// PluginConfigUses are the uses of the ConfigMap with the device plugin's configurations.
func PluginConfigUses(in Input) []Use {
	config := in.Spec.DevicePlugin.Config
	use := ConfigMapUse("spec.devicePlugin.config.name", config.Name)
	if config.Default != "" {
		use.Keys = []string{config.Default}
	}
	return []Use{use}
}

// MPSPaths are those below spec.devicePlugin.mps.root.
func (in Input) MPSPaths() MPSPaths {
	root := in.Spec.DevicePlugin.MPS.Root
	return MPSPaths{Root: root, SHM: path.Join(root, "shm")}
}
