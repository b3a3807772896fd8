package gpufeaturediscovery

import (
	"fmt"
	"strconv"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/mig"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/pluginconfig"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "gpu-feature-discovery"

// envNodeFeatureAPI is the variable with which it writes its labels to a NodeFeature or, if false, to a file.
const envNodeFeatureAPI = "USE_NODE_FEATURE_API"

const mainContainer = "gpu-feature-discovery"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "gpu-feature-discovery", Variable: "GFD_IMAGE", Field: "gfd",
	Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
}

// program is the command with which it is started.
const program = "gpu-feature-discovery"

// Operand is GPU Feature Discovery.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Images:         []image.Default{defaultImage},
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		NeedsInjection: true,
		Requires:       requirement.AfterToolkit(),
		Placement:      placement,
		Decide:         decide,
		Instances:      instances,
		Varies:         pluginconfig.Varies,

		References: pluginconfig.Uses,
	}
}

type values struct {
	Image, PullPolicy string
	// NodeFeatureAPI: the labels are written to a NodeFeature instead of a file.
	NodeFeatureAPI bool
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.GFD.Enabled {
		return operand.Disabled("spec.gfd.enabled")
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.GFD
	ref, err := in.Images.Of(defaultImage).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.gfd: %w", err)
	}
	config, err := pluginconfig.Of(in, program)
	if err != nil {
		return nil, fmt.Errorf("spec.devicePlugin: %w", err)
	}
	nodeFeatureAPI := usesNodeFeatureAPI(in)
	var env operand.Env
	// Without that API it writes the file gfd to the mounted directory, and removes it when it ends. Node discovery and,
	// if it is installed, Node Feature Discovery read it.
	env.AddIf(!nodeFeatureAPI, envNodeFeatureAPI, labels.False)
	mig.Of(in).AddTo(&env)
	return []operand.Instance{{
		Image:        ref.Image,
		Version:      ref.Version,
		PullSecrets:  spec.ImagePullSecrets,
		Main:         mainContainer,
		Container:    spec.ContainerSpec,
		PluginConfig: config,
		Additions:    map[string]operand.Additions{mainContainer: {Env: env}},
		Values: values{
			Image:          ref.Image,
			PullPolicy:     string(spec.ImagePullPolicy),
			NodeFeatureAPI: nodeFeatureAPI,
		},
	}}, nil
}

// usesNodeFeatureAPI reports whether the labels are written to a NodeFeature: with spec.nodeDiscovery.mode nfd, unless
// the environment in the spec decides.
func usesNodeFeatureAPI(in operand.Input) bool {
	uses := in.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD
	for _, variable := range in.Spec.GFD.Env {
		if set, err := strconv.ParseBool(variable.Value); err == nil && variable.Name == envNodeFeatureAPI {
			uses = set
		}
	}
	return uses
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.GFD.PlacementSpec, Field: "spec.gfd"}
}
