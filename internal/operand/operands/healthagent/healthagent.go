package healthagent

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/servicemonitor"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "health-agent"

const (
	// app is the name of the DaemonSet and of the Service, and their label app.
	app = "nvidia-gpu-health"
	// field is that of the operand's block.
	field = "spec.health.agent"
)

// Operand is the health agent. It requires nothing, as it reads the kernel log also while the driver starts.
func Operand() operand.Operand {
	return operand.Operand{
		Name:          Name,
		Workloads:     []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		ReportsHealth: true,
		Placement:     placement,
		Decide:        decide,
		Instances:     instances,
		References:    references,
	}
}

// decide refuses the agent without its admission policy: RBAC lets its pods patch every node.
func decide(in operand.Input) operand.Decision {
	switch {
	case !*in.Spec.Health.Agent.Enabled:
		return operand.Decision{
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec, Message: field + ".enabled is not true",
		}
	case !in.Exists(operand.AdmissionPolicies):
		return operand.Refuse(v1.ReasonAdmissionPolicyMissing, fmt.Sprintf(
			"the health agent is disabled because %s is missing: apply config/admission", operand.AdmissionPolicies))
	}
	return operand.Accept()
}

func references(in operand.Input) []operand.Use {
	if !*in.Spec.Health.Agent.Enabled {
		return nil
	}
	return []operand.Use{{Field: field + ".enabled", Reference: operand.AdmissionPolicies}}
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	ref, err := image.Helper(in.HelperSpec(), in.OperatorImage)
	if err != nil {
		return nil, fmt.Errorf("spec.validator: %w", err)
	}
	monitored := &v1.ServiceMonitorSpec{Enabled: new(true), HonorLabels: new(false)}
	return []operand.Instance{{
		Image:     ref.Image,
		Version:   ref.Version,
		Main:      app,
		Container: v1.ContainerSpec{Resources: in.Spec.Health.Agent.Resources},
		Monitor:   servicemonitor.Of(in, app, monitored),
	}}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.Health.Agent.PlacementSpec, Field: field}
}
