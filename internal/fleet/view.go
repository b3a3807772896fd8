package fleet

import (
	"iter"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// View is what a pass sees of the fleet at one moment.
type View struct {
	// Hydrated: every node of the cluster has an entry.
	Hydrated bool
	// Nodes are the entries of the managed nodes, by name.
	Nodes []*Entry
	// FactsVersion is another one after each change of the facts of a managed node.
	FactsVersion uint64
	// AnyDiscovered: some node has discovery labels, or once was found to have GPUs.
	AnyDiscovered bool
	// Undiscovered are the nodes without any discovery label, of which is unknown whether they have GPUs.
	Undiscovered []*Entry
}

// View returns the fleet as it is now.
func (f *Fleet) View() View {
	f.mu.RLock()
	defer f.mu.RUnlock()
	view := View{Hydrated: f.hydrated, FactsVersion: f.factsVersion, Nodes: make([]*Entry, 0, len(f.entries))}
	for _, entry := range f.entries {
		if entry.Managed() {
			view.Nodes = append(view.Nodes, entry)
		}
		if entry.Facts.Discovered || entry.Facts.WasGPU {
			view.AnyDiscovered = true
		}
		if !entry.Facts.Discovered {
			view.Undiscovered = append(view.Undiscovered, entry)
		}
	}
	slices.SortFunc(view.Nodes, byName)
	slices.SortFunc(view.Undiscovered, byName)
	return view
}

func byName(a, b *Entry) int { return strings.Compare(a.Facts.Name, b.Facts.Name) }

// Facts returns those of the managed nodes, by name.
func (v View) Facts() []nodeinfo.Facts {
	facts := make([]nodeinfo.Facts, 0, len(v.Nodes))
	for _, entry := range v.Nodes {
		facts = append(facts, entry.Facts)
	}
	return facts
}

// EachFacts yields those of the managed nodes, by name, without a copy. They are not to be changed.
func (v View) EachFacts() iter.Seq[*nodeinfo.Facts] {
	return func(yield func(*nodeinfo.Facts) bool) {
		for _, entry := range v.Nodes {
			if !yield(&entry.Facts) {
				return
			}
		}
	}
}

// StaleCount is the number of managed nodes that are not assessed by this basis yet.
func (v View) StaleCount(basis *Basis) int {
	count := 0
	for _, entry := range v.Nodes {
		if entry.Basis != basis.Version {
			count++
		}
	}
	return count
}
