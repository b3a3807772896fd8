package operands

import (
	"slices"
	"sync"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/containertoolkit"
	"github.com/clusterpolicy/gpu-operator/internal/operands/dcgm"
	"github.com/clusterpolicy/gpu-operator/internal/operands/dcgmexporter"
	"github.com/clusterpolicy/gpu-operator/internal/operands/deviceplugin"
	"github.com/clusterpolicy/gpu-operator/internal/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/operands/gpufeaturediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/operands/healthagent"
	"github.com/clusterpolicy/gpu-operator/internal/operands/migmanager"
	"github.com/clusterpolicy/gpu-operator/internal/operands/mpscontroldaemon"
	"github.com/clusterpolicy/gpu-operator/internal/operands/nodediscovery"
	"github.com/clusterpolicy/gpu-operator/internal/operands/nodestatusexporter"
	"github.com/clusterpolicy/gpu-operator/internal/operands/operatormetrics"
	"github.com/clusterpolicy/gpu-operator/internal/operands/operatorvalidator"
	"github.com/clusterpolicy/gpu-operator/internal/operands/runtimeclasses"
)

// Catalogue returns every operand, sorted so that each comes after those that it requires. An
// error is a defect of the catalogue, and the operator must not start with it.
func Catalogue() (operand.Catalogue, error) {
	all, err := checked()
	return slices.Clone(all), err
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
