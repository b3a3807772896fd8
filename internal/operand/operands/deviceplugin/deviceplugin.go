package deviceplugin

import (
	"fmt"

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
const Name operand.Name = "device-plugin"

const mainContainer = "nvidia-device-plugin"

// program is the command with which gpu-node starts the plugin.
const program = "nvidia-device-plugin"

// Operand is the device plugin.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Images:         []image.Default{pluginconfig.Image()},
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Stage:          v1.StageDevicePlugin,
		NeedsInjection: true,
		Requires:       requirement.AfterToolkit(),
		Placement:      pluginconfig.Placement,
		Decide:         decide,
		Instances:      instances,
		Varies:         pluginconfig.Varies,

		References: pluginconfig.Uses,
	}
}

type values struct {
	Image, PullPolicy  string
	DeviceListStrategy string
	MPS                pluginconfig.MPSPaths
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.DevicePlugin.Enabled {
		return operand.Disabled("spec.devicePlugin.enabled")
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.DevicePlugin
	ref, err := in.Images.Of(pluginconfig.Image()).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.devicePlugin: %w", err)
	}
	config, err := pluginconfig.Of(in, program)
	if err != nil {
		return nil, fmt.Errorf("spec.devicePlugin: %w", err)
	}
	strategy := "envvar"
	if in.CDIEnabled() {
		strategy = "cdi-annotations,cdi-cri"
	}
	return []operand.Instance{{
		Image:        ref.Image,
		Version:      ref.Version,
		PullSecrets:  spec.ImagePullSecrets,
		Main:         mainContainer,
		Container:    spec.ContainerSpec,
		PluginConfig: config,
		Additions:    map[string]operand.Additions{mainContainer: {Env: env(in)}},
		Values: values{
			Image:              ref.Image,
			PullPolicy:         string(spec.ImagePullPolicy),
			DeviceListStrategy: strategy,
			MPS:                pluginconfig.MPSPathsOf(in),
		},
	}}, nil
}

// env returns the variables that depend on the spec.
func env(in operand.Input) (env operand.Env) {
	// Makes the plugin provide the devices of these modules to containers.
	gds := *in.Spec.GDS.Enabled
	env.AddIf(gds, "GDS_ENABLED", labels.True)
	env.AddIf(gds, "MOFED_ENABLED", labels.True)
	env.AddIf(*in.Spec.GDRCopy.Enabled, "GDRCOPY_ENABLED", labels.True)
	mig.Of(in).AddTo(&env)
	if in.CDIEnabled() {
		env.Add("CDI_ENABLED", labels.True)
		env.Add("CDI_ANNOTATION_PREFIX", "cdi.k8s.io/")
		env.AddCDIHook(in)
	}
	return env
}
