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
		ServesPool:      servesPool,
		Placement:       placement,
		Wanted:          wanted,
		Instances:       instances,
		References:      references,
	}
}

func spec(in operand.Input) v1.DriverSpec {
	if in.Spec.Driver == nil {
		return v1.DriverSpec{}
	}
	return *in.Spec.Driver
}

// or is the block, or an empty one.
func or[T any](block *T) T {
	if block == nil {
		return *new(T)
	}
	return *block
}

func wanted(in operand.Input) operand.Decision {
	if !operand.IsTrue(spec(in).Enabled, true) {
		return operand.Disabled("spec.driver.enabled")
	}
	if refused := notDelegated(in); refused.Verdict != operand.Install {
		return refused
	}
	if refused := contradictingEnv(in); refused.Verdict != operand.Install {
		return refused
	}
	if in.PoolKey().Kernel {
		return precompilable(in)
	}
	return operand.Installed()
}

// moduleType is the flavour of the kernel modules, the default filled in.
func moduleType(spec v1.DriverSpec) v1.KernelModuleType {
	if spec.KernelModuleType == "" {
		return v1.KernelModuleAuto
	}
	return spec.KernelModuleType
}

func rdma(in operand.Input) bool {
	return operand.IsTrue(or(spec(in).RDMA).Enabled, false)
}

// hostMOFED tells whether the host brings the network driver; it matters for RDMA alone.
func hostMOFED(in operand.Input) bool {
	return rdma(in) && operand.IsTrue(spec(in).RDMA.UseHostMOFED, false)
}

func gds(in operand.Input) bool {
	return operand.IsTrue(or(in.Spec.GDS).Enabled, false)
}

func gdrcopy(in operand.Input) bool {
	return operand.IsTrue(or(in.Spec.GDRCopy).Enabled, false)
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: spec(in).PlacementSpec, Field: "spec.driver"}
}
