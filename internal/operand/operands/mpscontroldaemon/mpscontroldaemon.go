package mpscontroldaemon

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/capability"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/mig"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/pluginconfig"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
)

// Name of the operand.
const Name operand.Name = "mps-control-daemon"

const mainContainer = "mps-control-daemon-ctr"

// program is the command with which the daemon is started, as in NVIDIA's pods.
const program = "/usr/bin/mps-control-daemon"

// Operand is the MPS control daemon. It belongs to the device plugin, which passes its pipes to containers, and is
// removed from a node together with it.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		NeedsInjection: true,
		Follows:        "device-plugin",
		Requires:       requirement.AfterToolkit(),
		ServesNode:     serves,
		Placement:      pluginconfig.Placement,
		Decide:         decide,
		Instances:      instances,
		Varies:         pluginconfig.Varies,

		References: pluginconfig.Uses,
	}
}

// discovery is the operand that labels nodes whose configuration shares GPUs by MPS.
const discovery = "gpu-feature-discovery"

// serves decides by the label of GPU Feature Discovery. If the spec shares the GPUs by MPS, nodes without the label are
// served, too: it may never come. Where GPU Feature Discovery is turned off, "false" is left from before. A node whose
// label never came does not keep the daemon once no configuration shares GPUs.
func serves(in operand.Input, facts nodeinfo.Facts) operand.Decision {
	isOff := !*in.Spec.GFD.Enabled || facts.Deploy[discovery] == labels.False
	switch {
	case pluginconfig.SharesByMPS(in) && (facts.MPSCapable == "" || isOff):
		return operand.Accept()
	case facts.MPSCapable == "" && !mayShare(in):
		return operand.Decision{Choice: operand.Absent}
	}
	return capability.Decide(Name, facts.MPSCapable, facts)
}

type values struct {
	Image, PullPolicy string
	Program           string
	MPS               pluginconfig.MPSPaths
}

// decide requires a device plugin configuration: without one, GPUs are not shared, and GPU Feature Discovery labels no
// node as capable.
func decide(in operand.Input) operand.Decision {
	spec := in.Spec.DevicePlugin
	if !*spec.Enabled {
		return operand.Disabled("spec.devicePlugin.enabled")
	}
	if !mayShare(in) {
		return operand.Decision{
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec,
			Message: "neither spec.sharing.mps nor spec.devicePlugin.config.name is set: no configuration shares GPUs by MPS",
		}
	}
	return operand.Accept()
}

// mayShare reports whether the spec shares GPUs by MPS, or has configurations of the device plugin, which may do so.
func mayShare(in operand.Input) bool {
	return in.Spec.DevicePlugin.Config.Name != "" || pluginconfig.SharesByMPS(in)
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
	var env operand.Env
	devices := mig.Of(in)
	// It serves no MIG devices. Without a strategy in the spec it gets none, as NVIDIA's does.
	devices.MonitorMIG = devices.MonitorMIG && devices.SetMIGStrategy
	devices.AddTo(&env)
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        mainContainer,
		// Arguments and environment in the spec are for the plugin.
		Container:    v1.ContainerSpec{Resources: spec.Resources, HostNetwork: spec.HostNetwork},
		PluginConfig: config,
		Additions:    map[string]operand.Additions{mainContainer: {Env: env}},
		Values: values{
			Image:      ref.Image,
			PullPolicy: string(spec.ImagePullPolicy),
			Program:    program,
			MPS:        pluginconfig.MPSPathsOf(in),
		},
	}}, nil
}
