package campaign

import (
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// rows returns all rows of the campaign, in the order of docs/campaign.md.
func rows() []row {
	return slices.Concat(crashRows(), watchRows(), errorRows(), inputRows(), actorRows(), upgradeRows(), nodeRows(),
		admissionRows(), managerRows(), loadRows())
}

// elsewhere returns a row that other tests cover.
func elsewhere(id, what, tests string) row { return row{id: id, what: what, elsewhere: tests} }

// leftOut returns a row that is not run.
func leftOut(id, what, why string) row { return row{id: id, what: what, left: why} }

// upgradeRows need the upgrade engine.
func upgradeRows() []row {
	return []row{leftOut("U1-U15", "driver upgrades",
		"the operator does not cordon nodes yet; the rows will be added with the upgrade engine")}
}

// nameOf returns a request as part of a point's name.
func nameOf(request fault.Request) string {
	return strings.NewReplacer(" ", "_", "/", "-").Replace(request.String())
}
