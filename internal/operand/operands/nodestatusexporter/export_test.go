package nodestatusexporter

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// Port returns the port that an instance listens on.
func Port(instance operand.Instance) int { return valuesOf(instance).Port }

// PullPolicy returns the pull policy of an instance.
func PullPolicy(instance operand.Instance) string { return valuesOf(instance).PullPolicy }

func valuesOf(instance operand.Instance) values {
	v, _ := instance.Values.(values)
	return v
}
