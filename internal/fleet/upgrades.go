package fleet

import (
	"maps"
	"reflect"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UpgradeState is what a node means for a plan of driver upgrades.
type UpgradeState int

// The states. As long as all nodes are UpgradeAtRest or UpgradeDone, there is nothing to plan.
const (
	// UpgradeUnknown: the node was not looked at yet, or its pods could not be read.
	UpgradeUnknown UpgradeState = iota
	// UpgradeActive: a plan has something to do or to report for the node.
	UpgradeActive
	// UpgradeAtRest: it has not, see upgrade.Cluster.AtRest. No driver is installed on the node, or not yet.
	UpgradeAtRest
	// UpgradeDone is UpgradeAtRest with a driver that is up to date.
	UpgradeDone
)

// UpgradesAtRest reports whether driver upgrades need no plan because of any node, and if so, the number of nodes whose
// driver is up to date.
func (f *Fleet) UpgradesAtRest() (done int, atRest bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.hydrated || f.upgradeStates[UpgradeUnknown]+f.upgradeStates[UpgradeActive] > 0 {
		return 0, false
	}
	return f.upgradeStates[UpgradeDone], true
}

// SetUpgrades replaces the report of driver upgrades, nil for none. A pass is due if it differs in more than the
// estimate of the remaining time, which changes all the time. The report is copied, as it may be part of a larger
// object: a pointer to it would keep all that a pass has read in memory. Its Nodes must not be modified afterwards.
func (f *Fleet) SetUpgrades(report *upgrade.Report) {
	if report != nil {
		report = new(*report)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	same := sameUpgrades(f.upgrades, report)
	f.upgrades = report
	if !same {
		f.changed.Notify()
	}
}

// sameUpgrades reports whether two reports, nil for none, are equal but for the remaining time.
func sameUpgrades(a, b *upgrade.Report) bool {
	if a == nil || b == nil {
		return a == b
	}
	before, after := *a, *b
	before.Nodes, before.Remaining, after.Nodes, after.Remaining = nil, 0, nil, 0
	return reflect.DeepEqual(before, after) && maps.EqualFunc(a.Nodes, b.Nodes, sameProgress)
}

func sameProgress(a, b upgrade.Progress) bool {
	if !a.Since.Equal(b.Since) {
		return false
	}
	a.Since = b.Since
	return a == b
}
