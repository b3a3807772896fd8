package fleet

import (
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Fleet is the in-memory store of entries and of the Basis. It is safe for concurrent use.
type Fleet struct {
	// changed has an event when entries that a pass aggregates have changed; published when a new Basis is published.
	changed, published notify.Signal
	// assessed and actionsDue have an event when a plan of driver upgrades, and of health actions, may change with the
	// entries.
	assessed, actionsDue notify.Signal
	// actionsChanged has an event when the verdicts of health actions have changed.
	actionsChanged notify.Signal
	// neighboursChanged has an event when nodes have other neighbours.
	neighboursChanged notify.Signal

	mu       sync.RWMutex
	entries  map[string]*Entry
	hydrated bool
	// starting is the number of entries that are Starting.
	starting int
	// active are the nodes that a plan of driver upgrades has to look at, and rest has all others.
	active map[string]bool
	rest   upgrade.Rest
	// readers are the nodes that read a configuration of the device plugin, by its source, and unassessed is the number
	// of managed nodes that were not assessed yet.
	readers    map[string]*readers
	unassessed int
	basis      *Basis
	// factsVersion increases with each change of the facts of a managed node.
	factsVersion uint64
	// upgrades is the latest report of driver upgrades; nil before the first.
	upgrades *upgrade.Report
	// health are the latest verdicts of health actions by node; nil before the first. changedHealth are the nodes whose
	// verdict has changed since it was read last.
	health        map[string]healthaction.Verdict
	changedHealth map[string]bool
	// neighbours are those of each node that has any; nil before they were first looked for. changedNeighbours are the
	// nodes that have others since that was read last.
	neighbours        neighbour.OnNodes
	changedNeighbours map[string]bool
	// sharedOperands are the verdicts of the last ready node, and sharedEssential the essential operands of the last plan.
	// Most nodes have equal ones, which are stored once.
	sharedOperands  map[operand.Name]readiness.Verdict
	sharedEssential []plan.OperandOnNode
}

// New returns an empty Fleet.
func New() *Fleet {
	return &Fleet{
		changed: notify.New(), published: notify.New(), assessed: notify.New(), actionsDue: notify.New(),
		actionsChanged: notify.New(), neighboursChanged: notify.New(),
		entries: map[string]*Entry{}, active: map[string]bool{}, readers: map[string]*readers{},
		changedHealth: map[string]bool{}, changedNeighbours: map[string]bool{},
	}
}

// Changed returns a channel that has an event when a pass is due, for one receiver.
func (f *Fleet) Changed() <-chan event.GenericEvent { return f.changed.Events() }

// Published returns a channel that has an event when all nodes must be assessed again, for one receiver.
func (f *Fleet) Published() <-chan event.GenericEvent { return f.published.Events() }

// Assessed returns a channel that has an event when upgrades must be planned again because of entries or a new Basis,
// for one receiver.
func (f *Fleet) Assessed() <-chan event.GenericEvent { return f.assessed.Events() }

// notifyChanged requests a pass and a plan of driver upgrades.
func (f *Fleet) notifyChanged() {
	f.changed.Notify()
	f.notifyAssessed()
}

// notifyAssessed requests plans of driver upgrades and of health actions.
func (f *Fleet) notifyAssessed() {
	f.assessed.Notify()
	f.actionsDue.Notify()
}

// Get returns the entry of a node, nil if there is none.
func (f *Fleet) Get(node string) *Entry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.entries[node]
}

// Labels returns the labels that the node had when it was last reconciled, nil without an entry. They must not be
// modified.
func (f *Fleet) Labels(node string) map[string]string {
	if entry := f.Get(node); entry != nil {
		return entry.Facts.Labels
	}
	return nil
}

// Set replaces the entry of the node named by the facts.
func (f *Fleet) Set(entry *Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.entries[entry.Facts.Name]
	f.shareOperands(entry)
	f.count(before, entry)
	f.entries[entry.Facts.Name] = entry
	sameFacts := before != nil && before.Facts.Equal(entry.Facts)
	if !sameFacts && (entry.Managed() || before != nil && before.Managed()) {
		f.factsVersion++
	}
	if !sameFacts || aggregateDiffers(before, entry) {
		f.notifyChanged()
	} else if before.Latest.InService() != entry.Latest.InService() || !same(before.Resting, entry.Resting) {
		f.notifyAssessed()
	}
}

// Delete removes the entry of a deleted node.
func (f *Fleet) Delete(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, exists := f.entries[node]
	if !exists {
		return
	}
	f.count(before, nil)
	delete(f.entries, node)
	if before.Managed() {
		f.factsVersion++
	}
	f.notifyChanged()
}

// count updates the numbers and the index of entries when one is replaced; nil for none.
func (f *Fleet) count(before, after *Entry) {
	if before != nil {
		f.removeUpgrade(before)
		f.countReaders(before, -1)
		if before.Starting() {
			f.starting--
		}
	}
	if after != nil {
		f.addUpgrade(after)
		f.countReaders(after, 1)
		if after.Starting() {
			f.starting++
		}
	}
}

// shareOperands makes the entry of a ready node use the map of the previous ready node if the verdicts are equal.
func (f *Fleet) shareOperands(entry *Entry) {
	if !entry.Latest.Ready() || entry.BasisVersion == 0 {
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

// Planned returns the plan of a node for its entry, with shared essential operands.
func (f *Fleet) Planned(from PlanInputs, node plan.NodePlan) *PlannedNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.sharedEssential, node.Essential) {
		f.sharedEssential = node.Essential
	}
	node.Essential = f.sharedEssential
	return &PlannedNode{Inputs: from, NodePlan: node}
}

// aggregateDiffers reports whether a pass would aggregate something else, or the same by another Basis.
func aggregateDiffers(before, after *Entry) bool {
	previous, current := before.StatusAssessment(), after.StatusAssessment()
	return before.WriteError != after.WriteError || assessedAgain(before, after) ||
		before.Removal.differs(after.Removal) || before.NodePool != after.NodePool || before.DriverPool != after.DriverPool ||
		!sameNodeVerdict(current.NodeVerdict, previous.NodeVerdict) ||
		current.Excluded != previous.Excluded || current.Offer != previous.Offer || !current.Since.Equal(previous.Since) ||
		!maps.EqualFunc(current.Operands, previous.Operands, sameVerdict) ||
		!maps.EqualFunc(before.Discovering, after.Discovering, sameVerdict)
}

// assessedAgain reports whether a node that a pass aggregates was assessed by another Basis.
func assessedAgain(before, after *Entry) bool {
	return before.BasisVersion != after.BasisVersion && (after.Managed() || after.Removal != nil)
}

// sameNodeVerdict reports whether two verdicts on a node are equal for a pass.
func sameNodeVerdict(a, b readiness.NodeVerdict) bool {
	return a.Stage == b.Stage && a.Operand == b.Operand && sameVerdict(a.Verdict, b.Verdict)
}

// sameVerdict reports whether two verdicts are equal but for Until, which only the node controller uses.
func sameVerdict(a, b readiness.Verdict) bool {
	a.Until, b.Until = time.Time{}, time.Time{}
	return a == b
}

// Starting returns the number of entries that are Starting.
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

// Hydrate adds entries for nodes that have none yet, and marks the fleet as complete: a node without an entry has
// joined since.
func (f *Fleet) Hydrate(entries []*Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range entries {
		if f.entries[entry.Facts.Name] == nil {
			f.count(nil, entry)
			f.entries[entry.Facts.Name] = entry
		}
	}
	f.hydrated = true
	f.factsVersion++
	f.notifyChanged()
}

// Publish makes next the current Basis, and requests that all nodes are assessed again, unless next leads to the same
// assessments as the current Basis. It returns the current one.
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
		next.selectors = selectorKeys(d.Catalogue, d.Input)
	}
	next.own()
	f.basis = &next
	f.indexUpgrades()
	f.published.Notify()
	f.notifyAssessed()
	return f.basis
}

// Basis returns the current Basis, nil before the first is published.
func (f *Fleet) Basis() *Basis {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.basis
}
