package operands

import (
	"fmt"
	"slices"
	"sync"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/containertoolkit"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/dcgm"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/dcgmexporter"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/deviceplugin"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/gpufeaturediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/healthagent"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/migmanager"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/mpscontroldaemon"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/nodediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/nodestatusexporter"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/operatormetrics"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/operatorvalidator"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/runtimeclasses"
)

// Catalogue returns every operand, sorted so that each comes after those that it requires. An
// error is a defect of the catalogue, and the operator must not start with it.
func Catalogue() (operand.Catalogue, error) {
	all, err := checked()
	if err != nil {
		return nil, fmt.Errorf("the catalogue of operands is invalid, which is a bug in the operator: %w", err)
	}
	return slices.Clone(all), nil
}

// checked is the catalogue: its check takes a while, and a program that makes several plans asks for it for each.
var checked = sync.OnceValues(func() (operand.Catalogue, error) {
	return operand.NewCatalogue(
		nodediscovery.Operand(),
		driver.Operand(),
		runtimeclasses.Operand(),
		containertoolkit.Operand(),
		deviceplugin.Operand(),
		operatorvalidator.Operand(),
		dcgm.Operand(),
		dcgmexporter.Operand(),
		nodestatusexporter.Operand(),
		healthagent.Operand(),
		operatormetrics.Operand(),
		gpufeaturediscovery.Operand(),
		mpscontroldaemon.Operand(),
		migmanager.Operand(),
	)
})
