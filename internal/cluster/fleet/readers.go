package fleet

import (
	"maps"
	"slices"
)

// Readers are the managed nodes whose pods read a configuration of the device plugin from one source.
type Readers struct {
	// Nodes is the number of nodes, and Down those of them with ReadersDown, in any order.
	Nodes int
	Down  []string
	// Read is the number of nodes by their ReadDigest, without those of none.
	Read map[string]int
}

// readers are the Readers of a source, down being the set of nodes that are.
type readers struct {
	nodes int
	down  map[string]bool
	read  map[string]int
}

// ReadersBeside returns the Readers of the source, without this node. It returns false while another managed node is
// not assessed: its pods may be down. All entries are counted when they are set, since many nodes may ask at a time.
func (f *Fleet) ReadersBeside(node, source string) (beside Readers, known bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	unassessed := f.unassessed
	of := f.entries[node]
	if of != nil && of.isUnassessed() {
		unassessed--
	}
	if found := f.readers[source]; found != nil {
		beside.Nodes, beside.Down = found.nodes, slices.Collect(maps.Keys(found.down))
		beside.Read = maps.Clone(found.read)
	}
	if of != nil && source != "" && of.readsFrom() == source {
		beside.Nodes--
		addTo(beside.Read, of.ReadDigest, -1)
		beside.Down = slices.DeleteFunc(beside.Down, func(down string) bool { return down == node })
	}
	return beside, unassessed == 0
}

// countReaders adds the entry to the numbers by source, or removes it if by is -1.
func (f *Fleet) countReaders(entry *Entry, by int) {
	if entry.isUnassessed() {
		f.unassessed += by
	}
	source := entry.readsFrom()
	if source == "" {
		return
	}
	of := f.readers[source]
	if of == nil {
		of = &readers{down: map[string]bool{}, read: map[string]int{}}
		f.readers[source] = of
	}
	if of.nodes += by; of.nodes == 0 {
		delete(f.readers, source)
	}
	addTo(of.read, entry.ReadDigest, by)
	if !entry.ReadersDown {
		return
	}
	if by > 0 {
		of.down[entry.Facts.Name] = true
	} else {
		delete(of.down, entry.Facts.Name)
	}
}

// addTo adds to the number of a digest; one of no node has no number.
func addTo(numbers map[string]int, digest string, by int) {
	if digest == "" {
		return
	}
	if numbers[digest] += by; numbers[digest] == 0 {
		delete(numbers, digest)
	}
}

// isUnassessed reports whether a managed node was not assessed yet.
func (e *Entry) isUnassessed() bool { return e.Managed() && e.BasisVersion == 0 }

// readsFrom returns the source of the configuration of the device plugin on a managed node; empty for none.
func (e *Entry) readsFrom() string {
	if !e.Managed() || e.Planned == nil {
		return ""
	}
	return e.Planned.NodePlan.PluginConfigRead.Source
}
