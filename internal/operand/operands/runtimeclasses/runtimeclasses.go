package runtimeclasses

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Name of the operand.
const Name operand.Name = "runtime-classes"

// Operand is the set of RuntimeClasses.
func Operand() operand.Operand {
	return operand.Operand{Name: Name, Decide: decide, Instances: instances}
}

type values struct {
	// CDI adds the RuntimeClasses that force CDI or the hook.
	CDI bool
}

func decide(in operand.Input) operand.Decision {
	if !in.NRIEnabled() {
		return operand.Accept()
	}
	if !in.OwnToolkit() {
		return operand.Refuse(v1.ReasonInvalidSpec, "spec.cdi.nriPluginEnabled needs the container toolkit: "+
			"set spec.toolkit.enabled to true, or remove spec.cdi.nriPluginEnabled")
	}
	return operand.Unnecessary("spec.cdi.nriPluginEnabled is true: pods get GPUs without a RuntimeClass")
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	return []operand.Instance{{Values: values{CDI: in.CDIEnabled()}}}, nil
}
