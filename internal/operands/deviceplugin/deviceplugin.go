package deviceplugin

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "device-plugin"

// Operand is the device plugin.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Workloads: []operand.Workload{operand.WorkloadContainer},
		Stage:     v1.StageDevicePlugin,
		Injected:  true,
		Requires: []operand.Requirement{
			{On: "runtime-classes", Scope: operand.Cluster},
			{On: "container-toolkit", Scope: operand.Node, Marker: labels.MarkerToolkit},
		},
		Wanted:    wanted,
		Instances: instances,
	}
}

type values struct {
	Image, PullPolicy  string
	DeviceListStrategy string
	CDI                bool
	SetMIGStrategy     bool
	MIGStrategy        string
	MonitorMIG         bool
}

func spec(in operand.Input) v1.DevicePluginSpec {
	if in.Spec.DevicePlugin == nil {
		return v1.DevicePluginSpec{}
	}
	return *in.Spec.DevicePlugin
}

func wanted(in operand.Input) operand.Decision {
	if !operand.IsTrue(spec(in).Enabled, true) {
		return operand.Disabled("spec.devicePlugin.enabled")
	}
	return operand.Installed()
}

func instances(in operand.Input, _ []operand.Pool) ([]operand.Instance, error) {
	spec := spec(in)
	ref, err := image.Resolve(image.DevicePlugin, spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.devicePlugin: %w", err)
	}
	strategy := "envvar"
	if in.CDIEnabled() {
		strategy = "cdi-annotations,cdi-cri"
	}
	mig := in.MIGStrategy()
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        "nvidia-device-plugin",
		Container:   spec.ContainerSpec,
		Values: values{
			Image:              ref.Image,
			PullPolicy:         image.PullPolicy(spec.ImageSpec),
			DeviceListStrategy: strategy,
			CDI:                in.CDIEnabled(),
			SetMIGStrategy:     mig != "",
			MIGStrategy:        mig,
			MonitorMIG:         mig != "" && mig != string(v1.MIGStrategyNone),
		},
	}}, nil
}
