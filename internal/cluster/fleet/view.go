package fleet

import (
	"iter"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// View is what a pass sees of the fleet: the entries of all nodes, from the same moment.
type View struct {
	// Hydrated: every node of the cluster has an entry.
	Hydrated bool
	// Nodes are the entries of the managed nodes, by name.
	Nodes []*Entry
	// Others are the entries of the nodes that are not managed, in any order.
	Others []*Entry
	// FactsVersion increases with each change of the facts of a managed node.
	FactsVersion uint64
	// AnyDiscovered: a node has discovery labels, or the label of an earlier discovery of GPUs.
	AnyDiscovered bool
	// Undiscovered are the nodes without any discovery label, so that it is unknown whether they have GPUs.
	Undiscovered []*Entry
	// Upgrades is the latest report of driver upgrades; nil before the first. It must not be modified.
	Upgrades *upgrade.Report
	// HealthActions are the latest verdicts by node; nil before the first. They must not be modified.
	HealthActions map[string]healthaction.Verdict
}

// View returns the current View.
func (f *Fleet) View() View {
	f.mu.RLock()
	defer f.mu.RUnlock()
	view := View{
		Hydrated: f.hydrated, FactsVersion: f.factsVersion, Nodes: make([]*Entry, 0, len(f.entries)), Upgrades: f.upgrades,
		HealthActions: f.health,
	}
	for _, entry := range f.entries {
		if entry.Managed() {
			view.Nodes = append(view.Nodes, entry)
		} else {
			view.Others = append(view.Others, entry)
		}
		if entry.Facts.HasDiscoveryLabels || entry.Facts.WasGPU {
			view.AnyDiscovered = true
		}
		if !entry.Facts.HasDiscoveryLabels {
			view.Undiscovered = append(view.Undiscovered, entry)
		}
	}
	slices.SortFunc(view.Nodes, byName)
	slices.SortFunc(view.Undiscovered, byName)
	return view
}

func byName(a, b *Entry) int { return strings.Compare(a.Facts.Name, b.Facts.Name) }

// Facts returns a copy of the facts of the managed nodes, by name.
func (v View) Facts() []nodeinfo.Facts {
	facts := make([]nodeinfo.Facts, 0, len(v.Nodes))
	for _, entry := range v.Nodes {
		facts = append(facts, entry.Facts)
	}
	return facts
}

// AllFacts returns a copy of the facts of all nodes, in any order.
func (v View) AllFacts() []nodeinfo.Facts {
	facts := v.Facts()
	for _, entry := range v.Others {
		facts = append(facts, entry.Facts)
	}
	return facts
}

// EachFacts yields the facts of the managed nodes, by name. They are not copied and must not be modified.
func (v View) EachFacts() iter.Seq[*nodeinfo.Facts] {
	return func(yield func(*nodeinfo.Facts) bool) {
		for _, entry := range v.Nodes {
			if !yield(&entry.Facts) {
				return
			}
		}
	}
}

// UnassessedCount returns the number of managed nodes that are not assessed by this Basis yet.
func (v View) UnassessedCount(basis *Basis) int {
	count := 0
	for _, entry := range v.Nodes {
		if entry.BasisVersion != basis.Version {
			count++
		}
	}
	return count
}
