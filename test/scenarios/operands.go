package scenarios

import (
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// Tabled returns the catalogue with the operands that the tables of tests list. One that is added to the catalogue
// later is not among them, so that it changes none of these tables.
func Tabled() (operand.Catalogue, error) {
	tabled := []operand.Name{
		"node-discovery", "driver", "runtime-classes", "container-toolkit", "device-plugin", "operator-validator", "dcgm",
		"dcgm-exporter", "node-status-exporter", "operator-metrics", "gpu-feature-discovery", "mps-control-daemon",
		"mig-manager",
	}
	all, err := operands.Catalogue()
	return slices.DeleteFunc(all, func(o operand.Operand) bool { return !slices.Contains(tabled, o.Name) }), err
}
