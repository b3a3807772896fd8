package containertoolkit

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "container-toolkit"

const containerd = "containerd"

// Operand is the container toolkit.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Workloads: []operand.Workload{operand.WorkloadContainer},
		Stage:     v1.StageToolkit,
		Injects:   true,
		Requires:  []operand.Requirement{{On: "driver", Scope: operand.Node, Marker: labels.MarkerDriver}},
		Proves:    []operand.Proof{{Marker: labels.MarkerDriver, Of: "driver", Container: "driver-validation"}},
		Serves:    serves,
		Wanted:    wanted,
		Instances: instances,
	}
}

type values struct {
	Image, PullPolicy string
	Runtime           string
	CDI               bool
}

func spec(in operand.Input) v1.ToolkitSpec {
	if in.Spec.Toolkit == nil {
		return v1.ToolkitSpec{}
	}
	return *in.Spec.Toolkit
}

func wanted(in operand.Input) operand.Decision {
	if !operand.IsTrue(spec(in).Enabled, true) {
		return operand.Disabled("spec.toolkit.enabled")
	}
	for _, variable := range spec(in).Env {
		if relocatesRuntime(variable.Name) {
			return operand.Refused(v1.ReasonNotSupportedYet, fmt.Sprintf(
				"spec.toolkit.env: %s moves the files of the container runtime, which is not supported yet: remove it, "+
					"or install the toolkit on the hosts and set spec.toolkit.enabled to false", variable.Name))
		}
	}
	return operand.Installed()
}

// relocatesRuntime recognises the variables by which users tell NVIDIA's operator other host paths
// than containerd's own. The pod would have to mount those; passed on alone, they break it.
func relocatesRuntime(name string) bool {
	switch name {
	case "CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "DOCKER_CONFIG", "DOCKER_SOCKET", "CRIO_CONFIG",
		"RUNTIME_CONFIG", "RUNTIME_CONFIG_SOURCE", "RUNTIME_SOCKET", "RUNTIME_EXECUTABLE_PATH",
		"RUNTIME_DROP_IN_CONFIG", "RUNTIME_DROP_IN_CONFIG_HOST_PATH":
		return true
	}
	return false
}

// serves refuses a node with a container runtime whose configuration the toolkit's pod does not
// mount: it would write to the wrong place.
func serves(facts operand.NodeFacts) operand.Decision {
	if facts.Runtime != containerd {
		return operand.Refused(v1.ReasonNotSupportedYet,
			fmt.Sprintf("container runtime %q is not supported yet, only containerd", facts.Runtime))
	}
	return operand.Installed()
}

func instances(in operand.Input, _ []operand.Pool) ([]operand.Instance, error) {
	spec := spec(in)
	ref, err := image.Resolve(image.Toolkit, spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.toolkit: %w", err)
	}
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        "nvidia-container-toolkit-ctr",
		Container:   spec.ContainerSpec,
		InitEnv:     operand.ValidatorEnv(in, "driver-validation"),
		Values: values{
			Image:      ref.Image,
			PullPolicy: image.PullPolicy(spec.ImageSpec),
			Runtime:    containerd,
			CDI:        in.CDIEnabled(),
		},
	}}, nil
}
