package fleet

import (
	"maps"
	"reflect"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

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
