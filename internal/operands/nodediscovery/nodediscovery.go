package nodediscovery

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "node-discovery"

// Operand is the node discovery.
func Operand() operand.Operand {
	return operand.Operand{Name: Name, Discovers: true, Placement: placement, Wanted: wanted, Instances: instances}
}

type values struct{ Mode string }

func wanted(in operand.Input) operand.Decision {
	if in.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD {
		return operand.Decision{
			Verdict: operand.Absent, Reason: v1.ReasonDisabledBySpec,
			Message: "spec.nodeDiscovery.mode is nfd: Node Feature Discovery labels the nodes",
		}
	}
	return operand.Installed()
}

func instances(in operand.Input, _ []operand.Pool) ([]operand.Instance, error) {
	ref, err := image.Helper(in.Helper(), in.HelperImage)
	if err != nil {
		return nil, fmt.Errorf("spec.validator: %w", err)
	}
	instance := operand.Instance{
		Image:   ref.Image,
		Version: ref.Version,
		Main:    "node-discovery",
		Values:  values{Mode: string(in.Spec.NodeDiscovery.Mode)},
	}
	instance.Container.Resources = in.Spec.NodeDiscovery.Resources
	return []operand.Instance{instance}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.NodeDiscovery.PlacementSpec, Field: "spec.nodeDiscovery"}
}
