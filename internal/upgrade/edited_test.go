package upgrade

import (
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// upToDate is a node whose driver is the one that it needs.
func upToDate(name string) Node {
	return Node{Name: name, UID: "u", Installs: true, KubeletReady: true, GPUReady: true, Target: "v2",
		Driver: &Pod{Digest: "v2", Ready: true}}
}

// queued waits for a place.
func queued(name string) Node {
	n := upToDate(name)
	n.Driver = &Pod{Digest: "v1", Ready: true}
	n.State, n.Record = StateRequired, &Record{UID: "u", Round: 1, State: StateRequired, Target: "v2"}
	return n
}

// TestAnEditedNodeHoldsNoOther: what other clients write to the node a does not keep the node b from its turn. The
// first plan gives a place back that counts still; then b gets it.
func TestAnEditedNodeHoldsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*Node)
		slot Slot
		// patched: the first plan writes the node.
		patched bool
	}{
		"the record was removed, and the node is done in round 1": {
			edit: func(n *Node) {
				n.State, n.Record = StateDone, &Record{UID: "u", Round: 1, State: StateDone, Target: "v2"}
			},
			slot: Slot{UID: "u", Round: 3}, patched: true,
		},
		"the record was removed, and the driver is up to date": {
			edit: func(*Node) {}, slot: Slot{UID: "u", Round: 3}, patched: true,
		},
		"the annotation is empty": {
			edit: func(n *Node) { n.Unreadable = "unexpected end of JSON input" },
			slot: Slot{UID: "u", Round: 1}, patched: true,
		},
		"the label node-maintenance-required alone": {edit: func(n *Node) { n.State = StateNodeMaintenance }},
		"the label post-maintenance-required alone": {edit: func(n *Node) { n.State = StatePostMaintenance }},
		"the label on a node without a driver": {edit: func(n *Node) {
			n.Installs, n.State = false, StatePodRestart
		}},
		"an unknown label while the node waits with its place": {
			edit: func(n *Node) { *n = queued("a"); n.State = StateNodeMaintenance },
			slot: Slot{UID: "u", Round: 1}, patched: true,
		},
		"the driver pod is gone while the node waits with its place": {
			edit: func(n *Node) { *n = queued("a"); n.Driver = nil }, slot: Slot{UID: "u", Round: 1}, patched: true,
		},
		"a place of a round that no node gets to": {edit: func(*Node) {}, slot: Slot{UID: "u", Round: math.MaxInt64}},
		"a place for a MIG layout from the year 2999": {
			edit: func(n *Node) { n.MIG.Requested = "x" }, slot: Slot{UID: "u", Layout: "x", Since: farFuture},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := upToDate("a")
			test.edit(&a)
			c := Cluster{
				Now: epoch, Nodes: []Node{a, queued("b")}, Slots: Slots{"a": test.slot},
				Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(2)}},
			}
			if test.patched {
				plan := c.Plan()
				g.Expect(plan.Report.Nodes["b"].Message).To(HavePrefix("maxParallelUpgrades 1: a "))
				g.Expect(plan.Report.Nodes["b"].Message).NotTo(ContainSubstring("being upgraded"))
				g.Expect(plan.Steps).To(HaveLen(1))
				patch := plan.Steps[0].Patch
				c.Nodes[0].State, c.Nodes[0].Record, c.Nodes[0].Unreadable = patch.State, patch.Record, ""
				g.Expect(c.Slots.Valid(&c.Nodes[0])).To(BeFalse(), "the place never counts again")
			}
			g.Expect(c.Plan().Slots).To(HaveKey("b"))
			g.Expect(c.Plan().Slots).NotTo(HaveKey("a"))
		})
	}
}

// What a later release has written stays while an earlier one runs: its record has whose the cordon is. Its place does
// not hold the other node.
func TestWritesOfALaterReleaseStay(t *testing.T) {
	for name, edit := range map[string]func(*Node){
		"a state and a record that are unknown":  func(*Node) {},
		"a state that only has a meaning there":  func(n *Node) { n.State = StateNodeMaintenance },
		"a node on which no driver is installed": func(n *Node) { n.Installs = false },
		"a node that is not cordoned":            func(n *Node) { n.Unschedulable = false },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := upToDate("a")
			a.State, a.Unreadable, a.Unschedulable = "later-required", `unknown state "later-required"`, true
			edit(&a)
			plan := (&Cluster{
				Now: epoch, Nodes: []Node{a, queued("b")}, Slots: Slots{"a": {UID: "u", Round: 4}},
				Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(2)}},
			}).Plan()
			g.Expect(plan.Steps).To(BeEmpty())
			g.Expect(plan.Slots).To(And(HaveLen(1), HaveKey("b")))
			if a.Installs {
				g.Expect(plan.Report.Nodes["a"]).To(And(HaveField("Held", true),
					HaveField("Reason", v1.ReasonUpgradeUnknownState), HaveField("Message", ContainSubstring(string(a.State)))))
			}
		})
	}
}

// The end of an upgrade on a node that gets no driver any more takes two patches: the place ends before the record. It
// is one Event.
func TestAnEndIsOneEvent(t *testing.T) {
	g := NewWithT(t)
	n := queued("a")
	n.Installs = false
	c := &Cluster{
		Now: epoch, Nodes: []Node{n}, Slots: Slots{"a": {UID: "u", Round: 1}},
		Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(1)}},
	}
	var recorded []string
	for c.Nodes[0].Record != nil {
		plan := c.Plan()
		if plan.Slots != nil {
			c.Slots = plan.Slots
			continue
		}
		g.Expect(plan.Steps).To(HaveLen(1))
		patch := plan.Steps[0].Patch
		c.Nodes[0].State, c.Nodes[0].Record = patch.State, patch.Record
		if patch.Event != "" {
			recorded = append(recorded, patch.Event)
		}
	}
	g.Expect(recorded).To(ConsistOf("the operator does not install the driver on the node any more"))
}

// A place of the next round counts once: a node that begins with it gets to a round after it.
func TestAPlaceOfTheNextRoundCountsOnce(t *testing.T) {
	g := NewWithT(t)
	n := queued("a")
	n.Workload = &Workload{}
	c := Cluster{
		Now: epoch, Nodes: []Node{n}, Slots: Slots{"a": {UID: "u", Round: n.Record.Round + 1}},
		Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(1)}},
	}
	plan := c.Plan()
	g.Expect(plan.Steps).To(HaveLen(1))
	g.Expect(plan.Steps[0].Patch.State).To(Equal(StatePodRestart))
	c.Nodes[0].State, c.Nodes[0].Record = plan.Steps[0].Patch.State, plan.Steps[0].Patch.Record
	g.Expect(c.Slots.Valid(&c.Nodes[0])).To(BeFalse())
}

// Without a policy, the record of an upgrade that has ended goes although its place is left: nothing ends that.
func TestARecordWithoutAPolicyEnds(t *testing.T) {
	g := NewWithT(t)
	n := upToDate("a")
	n.Installs, n.Record = false, &Record{UID: "u", Round: 2, State: StateDone, Target: "v2"}
	plan := (&Cluster{Now: epoch, Nodes: []Node{n}, Slots: Slots{"a": {UID: "u", Round: 1}}}).Plan()
	g.Expect(plan.Steps).To(ConsistOf(HaveField("Patch", HaveValue(HaveField("Record", BeNil())))))
}

// A record with a time in the future has its deadline from now on.
func TestTimesInTheFuture(t *testing.T) {
	g := NewWithT(t)
	n := upToDate("a")
	n.Driver, n.Unschedulable, n.State = &Pod{Digest: "v1", Ready: true}, true, StatePodDeletion
	n.Record = &Record{UID: "u", Round: 1, State: StatePodDeletion, Since: farFuture, Target: "v2", Cordoned: true}
	n.Workload = &Workload{Users: []WorkloadPod{{Name: "train", Blocked: "PDB train allows 0 disruptions"}}}
	c := Cluster{Now: epoch, Nodes: []Node{n}, Policies: map[string]Policy{"": {
		Auto: true, PodDeletionTimeout: time.Minute, RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
	}}}
	patch := c.Plan().Steps[0].Patch
	g.Expect(patch.Record.Since).To(Equal(epoch))
	c.Nodes[0].Record, c.Now = patch.Record, epoch.Add(time.Minute)
	failed := c.Plan().Steps[0].Patch.Record
	g.Expect(failed.State).To(Equal(StateFailed))

	c.Nodes[0].State, c.Nodes[0].Record, c.Nodes[0].Unschedulable = StateFailed, failed, false
	g.Expect(c.Plan().Steps).To(BeEmpty(), "the retry is due later")
	failed.RetryAt = farFuture
	g.Expect(c.Plan().Steps).To(HaveLen(1), "no retry is scheduled for the year 2999")
}

// What another client writes into a record must not reach the status of the policy, which would be refused.
func TestImpossibleRecords(t *testing.T) {
	for text, problem := range map[string]string{
		`{"uid":"u","round":-1,"state":"upgrade-done"}`:                  "impossible round -1",
		`{"uid":"u","round":9223372036854775807,"state":"upgrade-done"}`: "impossible round 9223372036854775807",
		`{"uid":"u","state":"upgrade-failed","reason":"` + strings.Repeat("X", 129) + `"}`: `impossible reason "` +
			strings.Repeat("X", 129) + `"`,
	} {
		_, err := DecodeRecord(text)
		NewWithT(t).Expect(err).To(MatchError(problem))
	}
}

// While the place of the ConfigMap is taken, no slots are planned, and nodes that are being upgraded go on.
func TestNoSlotsDuringAConflict(t *testing.T) {
	g := NewWithT(t)
	running := upToDate("a")
	running.State, running.Unschedulable = StateValidation, true
	running.Record = &Record{UID: "u", Round: 1, State: StateValidation, Target: "v2", Cordoned: true}
	c := Cluster{
		Now: epoch, Nodes: []Node{running, queued("b")}, SlotsConflict: "it is taken", Slots: Slots{},
		Policies: map[string]Policy{"": {Auto: true, MaxParallel: 2, MaxUnavailable: intstr.FromInt32(2)}},
	}
	plan := c.Plan()
	g.Expect(plan.Slots).To(BeNil())
	g.Expect(plan.Steps).To(HaveLen(1))
	g.Expect(plan.Report.Nodes["b"].Reason).To(Equal(v1.ReasonConflict))
	g.Expect(plan.Report.Nodes["b"].Held).To(BeTrue(), "a person has to end the conflict")
}

// Of the nodes that have a place and have not begun, those begin that would get their place first now.
func TestTheFirstOfThePlacesBegins(t *testing.T) {
	for name, edit := range map[string]func(a, b *Node) (first Slot){
		"a request comes before others": func(_, b *Node) Slot {
			b.Record.Requested = true
			return Slot{UID: "u", Round: 1}
		},
		"a driver comes before a MIG layout": func(a, _ *Node) Slot {
			*a = wants("a")
			return granted(time.Minute, "a")["a"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a, b := queued("a"), queued("b")
			b.Workload = &Workload{}
			first := edit(&a, &b)
			a.Workload = &Workload{}
			plan := (&Cluster{
				Now: epoch, Nodes: []Node{a, b}, Slots: Slots{"a": first, "b": {UID: "u", Round: 1}},
				Policies: map[string]Policy{"": {Auto: true, MaxParallel: 1, MaxUnavailable: intstr.FromInt32(2)}},
			}).Plan()
			var begins []string
			for _, step := range plan.Steps {
				if step.Layout != nil || step.Patch.State.InProgress() {
					begins = append(begins, step.Node)
				}
			}
			g.Expect(begins).To(Equal([]string{"b"}))
		})
	}
}
