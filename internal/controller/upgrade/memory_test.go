package upgrade

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// The text of an admission webhook may differ with each attempt, and is part of what is written to the Node.
func TestRejectionsKeepTheirText(t *testing.T) {
	first, next := refusal{"request 1", true}, refusal{"request 2", true}
	budget, other := refusal{text: "PDB team-a/web allows 0"}, refusal{text: "PDB team-a/all allows 0"}
	for name, test := range map[string]struct{ first, next, want refusal }{
		"a webhook's text that differs": {first, next, first},
		"a webhook after a budget":      {budget, first, first},
		"a budget after a webhook":      {first, budget, budget},
		"another budget":                {budget, other, other},
	} {
		t.Run(name, func(t *testing.T) {
			m, timing := newMemory(), &Timing{FirstEviction: time.Second, LastEviction: time.Minute, KeepAnswer: time.Minute}
			m.reject("web", test.first, time.Time{}, timing)
			m.reject("web", test.next, time.Time{}, timing)
			if got := m.rejection("web"); got.answer.text != test.want.text || got.Wait != 2*time.Second {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			m.reject("web", test.next, time.Time{}.Add(time.Minute), timing)
			if got := m.rejection("web").answer.text; got != test.next.text {
				t.Errorf("a minute later: got %q, want %+v, which may be another cause", got, test.next)
			}
			m.forgetRejection("web")
			m.reject("web", test.next, time.Time{}, timing)
			if got := m.rejection("web").answer.text; got != test.next.text {
				t.Errorf("after an eviction: got %q, want %+v", got, test.next)
			}
		})
	}
}

// Each new cause of a node that is blocked is worth an Event, of the first few of a round.
func TestBlocksOfARound(t *testing.T) {
	m := newMemory()
	for i, step := range []struct {
		round   int64
		message string
		want    bool
	}{
		{1, "a", true}, {1, "a", false}, {1, "b", true}, {1, "c", false}, {2, "c", true}, {2, "c", false}, {2, "a", true},
		{2, "b", false}, {1, "c", true},
	} {
		if got := m.noteBlocked("node", step.round, step.message); got != step.want {
			t.Errorf("step %d, %+v: got %t", i, step, got)
		}
	}
	if !m.noteBlocked("other", 2, "b") {
		t.Error("another node shares the number of Events")
	}
}

// Without a policy the slots end with the last record. Where there are none, none are written.
func TestSlotsWithoutAPolicy(t *testing.T) {
	// The slot of a round that is not in a record is kept for the node.
	slots, node := upgrade.Slots{"a": {UID: "1", Round: 1}}, upgrade.Node{Name: "a", UID: "1"}
	recorded, drained := node, node
	recorded.Record = &upgrade.Record{UID: "1", Round: 1, State: upgrade.StateDrain}
	drained.MIG.Drain = &upgrade.Drain{UID: "1"}
	for name, test := range map[string]struct {
		slots     upgrade.Slots
		nodes     []upgrade.Node
		decisions *plan.Decisions
		ends      bool
	}{
		"without slots":                  {nodes: []upgrade.Node{node}},
		"at the end":                     {slots: slots, nodes: []upgrade.Node{node}, ends: true},
		"while a node has a record":      {slots: slots, nodes: []upgrade.Node{recorded}},
		"while a node has that of MIG":   {slots: slots, nodes: []upgrade.Node{drained}},
		"not after all: it has a policy": {slots: slots, nodes: []upgrade.Node{node}, decisions: &plan.Decisions{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{Pass: allnodes.Pass{Basis: &fleet.Basis{Decisions: test.decisions}}}
			s.cluster = upgrade.Cluster{Slots: test.slots, Nodes: test.nodes}
			s.plan()
			if got := s.planned.Slots; len(got) > 0 || (got != nil) != test.ends || s.planned.Report.Nodes == nil {
				t.Errorf("got %v, the slots end: %t", got, test.ends)
			}
		})
	}
}

// The pods of a node are read again after its plan has changed: another policy may evict them.
func TestPodsAreReadAgainForAnotherPlan(t *testing.T) {
	node := &corev1.Node{}
	node.Name, node.ResourceVersion = "a", "7"
	s := &scope{
		Reconciler: &Reconciler{Options: Options{Fleet: fleet.New(), Timing: Timing{FirstPoll: time.Minute}}},
		Pass:       allnodes.Pass{Basis: &fleet.Basis{Version: 3}, Now: time.Unix(100, 0)},
		observed:   map[string]*observed{"a": {node: node}},
	}
	s.memory = newMemory()
	planned := func(version string) {
		entry := &fleet.Entry{Planned: &fleet.PlannedNode{Inputs: fleet.PlanInputs{Version: version}}}
		entry.Facts.Name = "a"
		s.Fleet.Set(entry)
	}
	isKept := func() bool {
		known, left := s.keptWorkload("a")
		return left > 0 && left == s.Timing.FirstPoll-s.Now.Sub(known.at)
	}
	for _, version := range []string{"1", "2"} {
		s.memory.workloads["a"] = keptWorkload{of: s.workloadBasis("a"), at: s.Now}
		if !isKept() {
			t.Errorf("before plan %s: they are read again without a reason", version)
		}
		planned(version)
		if isKept() {
			t.Errorf("they are not read again after plan %s of the node", version)
		}
	}
	read := keptWorkload{of: s.workloadBasis("a"), at: s.Now}
	for i, test := range []struct {
		change func(*keptWorkload)
		kept   bool
	}{
		{func(*keptWorkload) {}, true},
		{func(k *keptWorkload) { k.at = s.Now.Add(-time.Second) }, true},
		{func(k *keptWorkload) { k.at = s.Now.Add(-time.Minute) }, false},
		{func(k *keptWorkload) { k.at = s.Now.Add(time.Second) }, false},
		{func(k *keptWorkload) { k.of.version = "6" }, false},
		{func(k *keptWorkload) { k.of.basis = 2 }, false},
	} {
		kept := read
		test.change(&kept)
		if s.memory.workloads["a"] = kept; isKept() != test.kept {
			t.Errorf("read %d: is it kept: want %t", i, test.kept)
		}
	}
}

// A read that succeeds before each write that is refused does not begin the back-off again, and the first answer stays
// for a time: the next ones may have another time or number in them.
func TestFailuresOfACall(t *testing.T) {
	const patches = "patching"
	m, now := newMemory(), time.Unix(1000, 0)
	timing := &Timing{
		Delays: allnodes.Delays{FirstRetry: time.Second, LastRetry: 30 * time.Second}, KeepAnswer: 20 * time.Second,
	}
	begun := now
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		m.noteCall("a", readsPods, nil, now, timing)
		if got := m.noteCall("a", patches, fmt.Errorf("refused at %s", now), now, timing); got != wait {
			t.Errorf("the next attempt is after %s, want %s", got, wait)
		}
		now = now.Add(wait)
	}
	message, since := m.failing("a", now, timing)
	if want := fmt.Sprintf("patching: refused at %s", begun); message != want || !since.Equal(begun) {
		t.Errorf("got %q since %s, want %q since %s", message, since, want, begun)
	}
	late := begun.Add(timing.KeepAnswer)
	m.noteCall("a", patches, errors.New("exceeded quota"), late, timing)
	if message, since := m.failing("a", late, timing); message != "patching: exceeded quota" || !since.Equal(begun) {
		t.Errorf("got %q since %s, want the answer of then since %s", message, since, begun)
	}
	now = late.Add(m.remaining("a", late))
	if message, _ := m.failing("a", now.Add(2*timing.LastRetry), timing); message != "" {
		t.Errorf("a call that is not repeated is remembered: %q", message)
	}
	if m.noteCall("a", patches, nil, now, timing); m.remaining("a", now) != 0 {
		t.Error("a write that succeeds is not the end of the failures")
	}
	m.noteCall("a", readsPods, errors.New("refused"), now, timing)
	if m.noteCall("a", readsPods, nil, now, timing); m.remaining("a", now) != 0 {
		t.Error("a read that succeeds is not the end of the failures of reads")
	}
}

// stays reports whether the node exists.
func stays(node string) bool { return node == "stays" }

// remembering returns a memory that has something of each of two nodes and their pods.
func remembering(t *Timing, now time.Time) memory {
	m := newMemory()
	for _, node := range []string{"stays", "leaves"} {
		m.noteWritten(node, "1")
		m.noteCall(node, "patching", errors.New("refused"), now, t)
		m.reject(types.UID("pod on "+node), refusal{text: "a budget"}, now, t)
		m.noteBusy(node, now)
		m.noteReplaced(node, "replaces 1")
		m.noteBlocked(node, 1, "a budget")
		m.workloads[node] = keptWorkload{at: now}
	}
	return m
}

// sizes are the numbers of nodes and pods in the memory.
func (m *memory) sizes() map[string]int {
	return map[string]int{
		"versions": len(m.versions), "failures": len(m.failures), "rejected": len(m.rejected), "busy": len(m.busy),
		"replaced": len(m.replaced), "workloads": len(m.workloads), "blocked": len(m.blocked),
	}
}

// Nothing is remembered of a node that has left, nor of pods that no node waits for.
func TestPruneForgetsWhatHasLeft(t *testing.T) {
	timing, now := DefaultTiming(), time.Unix(1000, 0)
	m := remembering(&timing, now)
	m.prune(map[string]bool{"stays": true}, map[types.UID]bool{"pod on stays": true}, stays)
	for what, size := range m.sizes() {
		if size != 1 {
			t.Errorf("%s: %d are remembered, want that of the node that stays", what, size)
		}
	}
	if m.versions["stays"] == "" || m.workloads["stays"].at.IsZero() || m.remaining("stays", now) == 0 ||
		m.rejection("pod on stays").answer.text == "" || m.expireBusy("stays", now, &timing) == 0 ||
		m.noteReplaced("stays", "replaces 1") || m.noteBlocked("stays", 1, "a budget") {
		t.Error("something of the node that stays is forgotten")
	}
	if !m.noteReplaced("stays", "replaces 2") {
		t.Error("another annotation that is replaced is no Event")
	}
}

// Of a node at rest, only the annotations that were replaced are remembered.
func TestPruneAtRest(t *testing.T) {
	timing, now := DefaultTiming(), time.Unix(1000, 0)
	m := remembering(&timing, now)
	m.prune(nil, nil, stays)
	for what, size := range m.sizes() {
		if want := map[string]int{"replaced": 1}[what]; size != want {
			t.Errorf("%s: %d are remembered, want %d", what, size, want)
		}
	}
}

// The pods that nodes wait for are read less and less often, until their number changes.
func TestPollsSlowDown(t *testing.T) {
	m, timing := newMemory(), &Timing{FirstPoll: 2 * time.Second, LastPoll: 15 * time.Second}
	for i, step := range []struct {
		waited int
		want   time.Duration
	}{{3, 2}, {3, 4}, {3, 8}, {3, 15}, {3, 15}, {2, 2}, {2, 4}, {3, 2}} {
		if got := m.slowPoll(step.waited, timing); got != step.want*time.Second {
			t.Errorf("read %d of %d pods: the next one is after %s, want %s", i+1, step.waited, got, step.want*time.Second)
		}
	}
}

// A node on which pods used the GPUs is taken for busy for a time.
func TestBusyNodesAreReadLater(t *testing.T) {
	m, timing, now := newMemory(), &Timing{RetryBusy: 30 * time.Second}, time.Unix(1000, 0)
	m.noteBusy("a", now)
	for _, step := range []struct {
		node  string
		after time.Duration
		want  time.Duration
	}{{"a", 0, 30}, {"b", 0, 0}, {"a", 29, 1}, {"a", 30, 0}, {"a", 0, 0}} {
		if got := m.expireBusy(step.node, now.Add(step.after*time.Second), timing); got != step.want*time.Second {
			t.Errorf("node %s after %d s: busy for %s, want %s", step.node, step.after, got, step.want*time.Second)
		}
	}
}

// Another call that fails is part of the same failures, with its own answer; the delay has a limit.
func TestFailuresOfSeveralCalls(t *testing.T) {
	timing := &Timing{Delays: allnodes.Delays{FirstRetry: time.Second, LastRetry: 3 * time.Second}}
	m, begun := newMemory(), time.Unix(1000, 0)
	now := begun
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		what := []string{readsPods, "patching", readsPods, "patching"}[i]
		if got := m.noteCall("a", what, errors.New("refused"), now, timing); got != want {
			t.Errorf("failure %d: the next attempt is after %s, want %s", i+1, got, want)
		}
		if got := m.remaining("a", now); got != want {
			t.Errorf("failure %d: no call for %s, want %s", i+1, got, want)
		}
		if message, since := m.failing("a", now, timing); message != what+": refused" || !since.Equal(begun) {
			t.Errorf("failure %d: %q since %s", i+1, message, since)
		}
		now = now.Add(want)
	}
	if m.remaining("a", now) != 0 || m.remaining("b", now) != 0 {
		t.Error("calls are delayed for longer than the back-off, or for another node")
	}
	if _, since := m.failing("a", now.Add(6*time.Second-time.Nanosecond), timing); !since.Equal(begun) {
		t.Errorf("the call counts as failing since %s, want since %s for twice the longest delay", since, begun)
	}
	late := now.Add(6 * time.Second)
	m.noteCall("a", "patching", errors.New("refused again"), late, timing)
	if message, since := m.failing("a", late, timing); message != "patching: refused again" || !since.Equal(late) {
		t.Errorf("a later failure: %q since %s, want its own answer and time", message, since)
	}
}

// The policy of a group is that of a node that the current Basis has assessed, before that of one that it has not.
func TestPoliciesOfGroups(t *testing.T) {
	g := NewWithT(t)
	spec := effective.Of(v1.ClusterPolicySpec{})
	entry := func(owner string, parallel int32, basis uint64) *fleet.Entry {
		policy := *spec.Driver.UpgradePolicy
		policy.MaxParallelUpgrades = &parallel
		e := &fleet.Entry{
			Facts: nodeinfo.Facts{HasGPU: true}, BasisVersion: basis,
			Planned: &fleet.PlannedNode{NodePlan: plan.NodePlan{DriverOwner: owner}},
		}
		e.Planned.NodePlan.Spec.Driver = &v1.DriverSpec{UpgradePolicy: &policy}
		return e
	}
	notPlanned, other := entry("c", 1, 7), entry("d", 1, 7)
	notPlanned.Planned, other.Facts.HasGPU = nil, false
	s := &scope{
		Reconciler: New(Options{Timing: DefaultTiming()}),
		view: fleet.UpgradeView{Active: []*fleet.Entry{
			entry("a", 1, 6), entry("a", 2, 7), entry("b", 3, 6), notPlanned, other,
		}},
	}
	s.Basis = &fleet.Basis{Version: 7, Decisions: &plan.Decisions{Input: operand.Input{Spec: spec}}}
	found := map[string]int{}
	for group, policy := range s.policies() {
		found[group] = policy.MaxParallel
		g.Expect([]time.Duration{policy.RetryAfter, policy.MaxRetryAfter}).
			To(Equal([]time.Duration{10 * time.Minute, 3 * time.Hour}))
	}
	g.Expect(found).To(Equal(map[string]int{
		"": int(*spec.Driver.UpgradePolicy.MaxParallelUpgrades), "NVIDIADriver a": 2, "NVIDIADriver b": 3,
	}))
	s.Basis = &fleet.Basis{}
	g.Expect(s.policies()).To(BeEmpty(), "before the first decision")
}
