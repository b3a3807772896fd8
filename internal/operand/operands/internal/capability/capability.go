// Package capability decides which nodes get an operand that only some GPUs support.
package capability

import (
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Decide serves the nodes whose label is "true": their GPUs support the operand. A node that has the operand keeps it
// while the label is missing, as GPU Feature Discovery writes the label again after a restart.
func Decide(name operand.Name, label string, facts nodeinfo.Facts) operand.Decision {
	if label == labels.True || label == "" && facts.Deploy[string(name)] != "" {
		return operand.Accept()
	}
	return operand.Decision{Choice: operand.Absent}
}
