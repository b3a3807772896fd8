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

// upgradeRows are run with nodes whose drivers are upgraded.
func upgradeRows() []row {
	return []row{
		{
			id: "U4", what: "drivers are upgraded one node at a time, while the operator is killed or frozen, is there twice, " +
				"or its calls fail",
			sample: 1, points: duringUpgrade,
		},
		elsewhere("U1", "a crash at each step of a driver upgrade, two managers, pods that are ready at once",
			"TestCrashes, TestTwoManagers, TestEachStep, TestFastPods (test/upgrades)"),
		elsewhere("U2", "evictions that are refused, drivers that fail or are killed, edits meanwhile",
			"TestObstacles, TestBadDriver, TestKilledDrivers, TestEdits (test/upgrades)"),
		elsewhere("U3", "calls of an upgrade that are refused for good, with another text or for another cause each time",
			"TestARefusedPullHoldsNoOther, TestRefusedPatchesHoldNoOther, TestADeadNodeHoldsNoOther (internal/upgrade), "+
				"TestUpgradeController (internal/controller/upgrade)"),
	}
}

// nameOf returns a request as part of a point's name.
func nameOf(request fault.Request) string {
	return strings.NewReplacer(" ", "_", "/", "-").Replace(request.String())
}
