package fleet

import (
	"iter"
	"maps"
	"reflect"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UpgradeView is what a pass of driver upgrades sees of the fleet, from one moment. What it costs depends on the number
// of Active entries, not on that of all.
type UpgradeView struct {
	// Hydrated as in View.
	Hydrated bool
	// Active are the entries of the nodes that a plan has to look at, in any order: those that are not at rest, that were
	// not assessed by the current Basis, or that were asked for.
	Active []*Entry
	// Rest has all other nodes.
	Rest upgrade.Rest
}

// UpgradeView returns the current view, in which the nodes of these names are Active.
func (f *Fleet) UpgradeView(asked iter.Seq[string]) UpgradeView {
	// The copy shares parts of the original, which notes that.
	f.mu.Lock()
	defer f.mu.Unlock()
	view := UpgradeView{Hydrated: f.hydrated, Active: make([]*Entry, 0, len(f.active)), Rest: f.rest.Copy()}
	for name := range f.active {
		view.Active = append(view.Active, f.entries[name])
	}
	for name := range asked {
		if entry := f.entries[name]; entry != nil && !f.active[name] {
			view.Active = append(view.Active, entry)
			view.Rest.Remove(entry.Resting)
		}
	}
	return view
}

// UpgradesAtRest reports whether driver upgrades need no plan because of any node, and if so, the number of nodes whose
// driver is up to date.
func (f *Fleet) UpgradesAtRest() (done int, atRest bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.hydrated || len(f.active) > 0 {
		return 0, false
	}
	return f.rest.UpToDate(), true
}

// addUpgrade adds an entry to the index of what a plan of driver upgrades has to look at. What was true of a node by an
// earlier Basis may not be true any more.
func (f *Fleet) addUpgrade(entry *Entry) {
	if entry.Resting == nil || f.basis != nil && entry.BasisVersion != f.basis.Version {
		f.active[entry.Facts.Name] = true
		return
	}
	f.rest.Add(entry.Resting)
}

// removeUpgrade is the opposite of addUpgrade.
func (f *Fleet) removeUpgrade(entry *Entry) {
	if f.active[entry.Facts.Name] {
		delete(f.active, entry.Facts.Name)
		return
	}
	f.rest.Remove(entry.Resting)
}

// indexUpgrades makes the index by the current Basis.
func (f *Fleet) indexUpgrades() {
	f.active, f.rest = map[string]bool{}, upgrade.Rest{}
	for _, entry := range f.entries {
		f.addUpgrade(entry)
	}
}

// same reports whether both are the same; each may be nil.
func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
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
