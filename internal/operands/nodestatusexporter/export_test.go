package nodestatusexporter

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// Port is what an instance listens on.
func Port(instance operand.Instance) int { return valuesOf(instance).Port }

// PullPolicy is how the image of an instance is pulled.
func PullPolicy(instance operand.Instance) string { return valuesOf(instance).PullPolicy }

func valuesOf(instance operand.Instance) values {
	v, _ := instance.Values.(values)
	return v
}
