package fleet

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// NeighboursChanged returns a channel that has an event when nodes have other neighbours, for one receiver.
func (f *Fleet) NeighboursChanged() <-chan event.GenericEvent { return f.neighboursChanged.Events() }

// SetNeighbours replaces the neighbours of all nodes, which must not be modified afterwards. The nodes that have others
// than before are assessed again; all of them when neighbours become known.
func (f *Fleet) SetNeighbours(found neighbour.OnNodes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.neighbours == nil
	for node := range f.entries {
		if first || !slices.Equal(f.neighbours[node], found[node]) {
			f.changedNeighbours[node] = true
		}
	}
	f.neighbours = found
	if len(f.changedNeighbours) > 0 {
		f.neighboursChanged.Notify()
	}
}

// Neighbours returns those of a node. known is false before they were first looked for.
func (f *Fleet) Neighbours(node string) (found []neighbour.Neighbour, known bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.neighbours[node], f.neighbours != nil
}

// TakeNeighbourChanges returns the nodes whose neighbours have changed since the last call, in any order.
func (f *Fleet) TakeNeighbourChanges() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := make([]string, 0, len(f.changedNeighbours))
	for node := range f.changedNeighbours {
		changed = append(changed, node)
	}
	clear(f.changedNeighbours)
	return changed
}

// HasGPUNodes reports whether the operator manages a node by the current Basis.
func (f *Fleet) HasGPUNodes() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.basis == nil || f.basis.Decisions == nil {
		return false
	}
	for _, entry := range f.entries {
		if entry.Managed() {
			return true
		}
	}
	return false
}

// ReportsNeighbours reports whether a node reports its neighbours, or waits for what one may offer: another device
// plugin or a DRA driver.
func (f *Fleet) ReportsNeighbours() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, entry := range f.entries {
		if entry.Latest.NamesNeighbours() {
			return true
		}
	}
	return false
}
