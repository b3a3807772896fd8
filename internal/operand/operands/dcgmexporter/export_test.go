package dcgmexporter

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// CallsAPI exports callsAPI.
var CallsAPI = callsAPI

// Port returns the port that an instance listens on.
func Port(instance operand.Instance) int {
	v, _ := instance.Values.(values)
	return v.Port
}
