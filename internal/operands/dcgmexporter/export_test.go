package dcgmexporter

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// CallsAPI is for the tests.
var CallsAPI = callsAPI

// Port is what an instance listens on.
func Port(instance operand.Instance) int {
	v, _ := instance.Values.(values)
	return v.Port
}
