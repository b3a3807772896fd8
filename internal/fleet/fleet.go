package fleet

import (
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/notify"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// Fleet is safe for use by several goroutines. It may be lost at any time: it is filled anew from the Nodes.
type Fleet struct {
	// changed has an event when entries have changed that a pass aggregates, published when another basis is.
	changed, published notify.Signal

	mu       sync.RWMutex
	entries  map[string]*Entry
	hydrated bool
	// starting is the number of nodes on the way to ready.
	starting int
	basis    *Basis
	// facts are counted by factsVersion, which is another one after each change of the facts of a managed node.
	factsVersion uint64
	// sharedOperands are the operands of the last node on which all is well, and sharedStages those of the last plan: most nodes have the
	// same, which are kept once.
	sharedOperands map[operand.Name]readiness.Verdict
	sharedStages   []plan.Rung
}

// New returns an empty Fleet.
func New() *Fleet {
	return &Fleet{changed: notify.New(), published: notify.New(), entries: map[string]*Entry{}}
}

// Changed has an event when a pass is due, for one receiver.
func (f *Fleet) Changed() <-chan event.GenericEvent { return f.changed.Events() }

// Published has an event when all nodes are to be assessed again, for one receiver.
func (f *Fleet) Published() <-chan event.GenericEvent { return f.published.Events() }

// Get returns the entry of a node, nil if there is none.
func (f *Fleet) Get(node string) *Entry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.entries[node]
}

// Set replaces the entry of the node that its facts name.
func (f *Fleet) Set(entry *Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.entries[entry.Facts.Name]
	f.shareOperands(entry)
	f.countStarting(before, entry)
	f.entries[entry.Facts.Name] = entry
	sameFacts := before != nil && before.Facts.Equal(entry.Facts)
	if !sameFacts && (entry.Managed() || before != nil && before.Managed()) {
		f.factsVersion++
	}
	if !sameFacts || verdictDiffers(before, entry) {
		f.changed.Notify()
	}
}

// Delete drops the entry of a node that is gone.
func (f *Fleet) Delete(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.entries[node]
	if !known {
		return
	}
	f.countStarting(before, nil)
	delete(f.entries, node)
	if before.Managed() {
		f.factsVersion++
	}
	f.changed.Notify()
}

func (f *Fleet) countStarting(before, after *Entry) {
	if before != nil && before.Starting() {
		f.starting--
	}
	if after != nil && after.Starting() {
		f.starting++
	}
}

// shareOperands has a node on which all is well keep the same map as the one before.
func (f *Fleet) shareOperands(entry *Entry) {
	if !entry.Latest.Ready() || entry.Basis == 0 {
		return
	}
	if !maps.Equal(f.sharedOperands, entry.Latest.Operands) {
		f.sharedOperands = entry.Latest.Operands
	}
	entry.Latest.Operands = f.sharedOperands
	if maps.Equal(f.sharedOperands, entry.Report.Operands) {
		entry.Report.Operands = f.sharedOperands
	}
}

// Planned returns the plan of a node, for its entry.
func (f *Fleet) Planned(from Source, node plan.Node) *Planned {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.sharedStages, node.Rungs) {
		f.sharedStages = node.Rungs
	}
	node.Rungs = f.sharedStages
	return &Planned{From: from, Node: node}
}

// verdictDiffers reports whether a pass finds another verdict, or the same by another basis.
func verdictDiffers(before, after *Entry) bool {
	shown, was := after.StatusAssessment(), before.StatusAssessment()
	return after.Managed() && before.Basis != after.Basis || before.WriteError != after.WriteError ||
		before.NodePool != after.NodePool || before.DriverPool != after.DriverPool ||
		shown.Stage != was.Stage || shown.Operand != was.Operand || !sameVerdict(shown.Verdict, was.Verdict) ||
		shown.Excluded != was.Excluded || !shown.Since.Equal(was.Since) ||
		!maps.EqualFunc(shown.Operands, was.Operands, sameVerdict) || !maps.EqualFunc(before.Discovering, after.Discovering, sameVerdict)
}

// sameVerdict reports whether two verdicts differ at most in when they change by themselves, which is the node
// controller's alone to look after.
func sameVerdict(a, b readiness.Verdict) bool {
	a.Until, b.Until = time.Time{}, time.Time{}
	return a == b
}

// Starting is the number of nodes on the way to ready.
func (f *Fleet) Starting() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.starting
}

// Names returns the nodes that have an entry, in any order.
func (f *Fleet) Names() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	names := make([]string, 0, len(f.entries))
	for name := range f.entries {
		names = append(names, name)
	}
	return names
}

// Hydrate sets entries of nodes that have none yet, and marks the fleet as complete: from now on every node that is not
// in it has joined since.
func (f *Fleet) Hydrate(entries []*Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range entries {
		if f.entries[entry.Facts.Name] == nil {
			f.entries[entry.Facts.Name] = entry
		}
	}
	f.hydrated = true
	f.factsVersion++
	f.changed.Notify()
}

// Publish has all nodes assessed by another basis, unless it assesses them like the present one, and returns the one in
// force.
func (f *Fleet) Publish(next Basis, now time.Time) *Basis {
	next.fingerprint = fingerprints(next.Stack.DaemonSets)
	f.mu.Lock()
	defer f.mu.Unlock()
	if next.equals(f.basis) {
		return f.basis
	}
	next.Version, next.Since = 1, now
	if f.basis != nil {
		next.Version = f.basis.Version + 1
	}
	if d := next.Decisions; d != nil {
		next.selectors = d.Catalogue.SelectorKeys(d.Input)
	}
	f.basis = &next
	f.published.Notify()
	return f.basis
}

// Basis returns what nodes are assessed by, nil before anything is published.
func (f *Fleet) Basis() *Basis {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.basis
}
