package operatorvalidator

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/mig"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/validator"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "operator-validator"

// Operand is the validator.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Stage:          v1.StageValidated,
		NeedsInjection: true,
		Requires: []operand.Requirement{
			{On: "runtime-classes", Scope: operand.Cluster},
			{On: "driver", Scope: operand.Node, Marker: labels.MarkerDriver},
			{On: "container-toolkit", Scope: operand.Node, Marker: labels.MarkerToolkit},
			{On: "device-plugin", Scope: operand.Node, Marker: labels.MarkerPlugin},
		},
		Proofs: []operand.Proof{
			{Marker: labels.MarkerDriver, Of: "driver", Container: "driver-validation"},
			{Marker: labels.MarkerToolkit, Of: "container-toolkit", Container: "toolkit-validation"},
			{Marker: labels.MarkerCUDA, Of: "container-toolkit", Container: "cuda-validation"},
			{Marker: labels.MarkerPlugin, Of: "device-plugin", Container: "plugin-validation", OnlyWithOperand: true},
		},
		Placement: placement,
		Decide:    func(operand.Input) operand.Decision { return operand.Accept() },
		Instances: instances,
		Varies:    mig.Varies,
	}
}

type values struct {
	mig.Values
	// NRI: containers may be created before the toolkit can inject GPUs.
	NRI bool
	// PullSecrets are for the pods that the plugin check starts, separated by commas.
	PullSecrets string
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.Validator
	ref, err := image.Helper(spec.ImageSpec, in.OperatorImage)
	if err != nil {
		return nil, fmt.Errorf("spec.validator: %w", err)
	}
	return []operand.Instance{{
		Image:     ref.Image,
		Version:   ref.Version,
		Main:      "nvidia-operator-validator",
		Container: spec.ContainerSpec,
		InitEnv:   validator.Env(in, "driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"),
		Values: values{
			Values: mig.Of(in), NRI: in.NRIEnabled(),
			PullSecrets: strings.Join(slices.Concat(spec.ImagePullSecrets, in.Spec.Global.ImagePullSecrets), ","),
		},
	}}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.Validator.PlacementSpec, Field: "spec.validator"}
}
