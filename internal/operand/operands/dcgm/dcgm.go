package dcgm

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "dcgm"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "dcgm", Variable: "DCGM_IMAGE", Field: "dcgm",
	Repository: "nvcr.io/nvidia/cloud-native", Image: "dcgm", Version: "4.6.0-1-ubuntu24.04",
}

// Operand is the DCGM engine.
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
	}
}

type values struct{ Image, PullPolicy string }

func decide(in operand.Input) operand.Decision {
	if !in.DCGMEnabled() {
		return operand.Decision{
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec,
			Message: "spec.dcgm.enabled is not true: the DCGM exporter runs its own engine",
		}
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.DCGM
	ref, err := in.Images.Of(defaultImage).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.dcgm: %w", err)
	}
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        "nvidia-dcgm-ctr",
		Container:   spec.ContainerSpec,
		Values:      values{Image: ref.Image, PullPolicy: string(spec.ImagePullPolicy)},
	}}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.DCGM.PlacementSpec, Field: "spec.dcgm"}
}
