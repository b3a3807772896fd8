package gpufeaturediscovery

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "gpu-feature-discovery"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "gpu-feature-discovery", Field: "gfd", Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
}

// program is the name that it is started by.
const program = "gpu-feature-discovery"

// Operand is GPU Feature Discovery.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Images:    []image.Default{defaultImage},
		Workloads: []operand.Workload{operand.WorkloadContainer},
		Injected:  true,
		Requires:  operand.AfterToolkit(),
		Placement: placement,
		Wanted:    wanted,
		Instances: instances,
		Varies:    operand.VariesPlugin,

		References: operand.PluginConfigUses,
	}
}

type values struct {
	Image, PullPolicy string
	// NodeFeatureAPI: the labels go into a NodeFeature instead of a file.
	NodeFeatureAPI bool
	operand.MIGValues
}

func wanted(in operand.Input) operand.Decision {
	if !*in.Spec.GFD.Enabled {
		return operand.Disabled("spec.gfd.enabled")
	}
	return operand.Installed()
}

func instances(in operand.Input, _ []operand.Pool) ([]operand.Instance, error) {
	spec := in.Spec.GFD
	ref, err := defaultImage.Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.gfd: %w", err)
	}
	config, err := in.PluginConfig(program)
	if err != nil {
		return nil, fmt.Errorf("spec.devicePlugin: %w", err)
	}
	secrets := spec.ImagePullSecrets
	if config != nil {
		secrets = slices.Concat(secrets, in.Spec.DevicePlugin.ImagePullSecrets)
	}
	return []operand.Instance{{
		Image:        ref.Image,
		Version:      ref.Version,
		PullSecrets:  secrets,
		Main:         "gpu-feature-discovery",
		Container:    spec.ContainerSpec,
		PluginConfig: config,
		Values: values{
			Image:          ref.Image,
			PullPolicy:     string(spec.ImagePullPolicy),
			NodeFeatureAPI: in.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD,
			MIGValues:      in.MIG(),
		},
	}}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.GFD.PlacementSpec, Field: "spec.gfd"}
}
