package nodediscovery

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "node-discovery"

// Operand is node discovery.
func Operand() operand.Operand {
	return operand.Operand{
		Name: Name, Discovers: true, Placement: placement, Decide: decide, Instances: instances, References: references,
	}
}

type values struct{ Mode string }

// bindingMissing: RBAC lets the pods patch every node, so they are not installed without the admission policy that
// restricts them to their own node and labels.
var bindingMissing = fmt.Sprintf("node discovery is disabled because %s is missing: "+
	"apply config/admission, or use Node Feature Discovery", operand.AdmissionPolicies)

func decide(in operand.Input) operand.Decision {
	mode := in.Spec.NodeDiscovery.Mode
	switch {
	case mode == v1.DiscoveryNFD:
		return operand.Decision{
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec,
			Message: "spec.nodeDiscovery.mode is nfd: Node Feature Discovery labels the nodes",
		}
	case in.Exists(operand.AdmissionPolicies):
		return operand.Accept()
	case mode == v1.DiscoveryBuiltin:
		return operand.Refuse(v1.ReasonAdmissionPolicyMissing, bindingMissing)
	default:
		return operand.Decision{Choice: operand.Absent, Reason: v1.ReasonAdmissionPolicyMissing, Message: bindingMissing}
	}
}

func references(in operand.Input) []operand.Use {
	if in.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD {
		return nil
	}
	return []operand.Use{{Field: "spec.nodeDiscovery.mode", Reference: operand.AdmissionPolicies}}
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	ref, err := image.Helper(in.HelperSpec(), in.OperatorImage)
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
