package driver

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "driver"

// Operand is the driver.
func Operand() operand.Operand {
	return operand.Operand{
		Name:            Name,
		Workloads:       []operand.Workload{operand.WorkloadContainer},
		Stage:           v1.StageDriver,
		UpdatesOnDelete: true,
		Serves:          serves,
		Wanted:          wanted,
		Instances:       instances,
	}
}

func spec(in operand.Input) v1.DriverSpec {
	if in.Spec.Driver == nil {
		return v1.DriverSpec{}
	}
	return *in.Spec.Driver
}

func wanted(in operand.Input) operand.Decision {
	if !operand.IsTrue(spec(in).Enabled, true) {
		return operand.Disabled("spec.driver.enabled")
	}
	return operand.Installed()
}

// serves refuses a node whose operating system or architecture is not known: the image's tag
// follows from them, and a wrong guess would load a foreign driver.
func serves(facts operand.NodeFacts) operand.Decision {
	if _, complete := facts.EffectivePool(); !complete {
		return operand.Refused(v1.ReasonFactsMissing,
			"no discovery labels for the operating system, which the driver image is chosen by")
	}
	return operand.Installed()
}
