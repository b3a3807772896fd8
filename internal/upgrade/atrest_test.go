package upgrade

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// In every state of the model: while all nodes are at rest and there are no slots, the plan is empty, and it counts the
// nodes that are up to date. Then no plan is computed. -short tries two settings, which chance selects.
func TestNodesAtRestNeedNoPlan(t *testing.T) {
	var rests, plans, parts atomic.Int64
	checked := func(c *Cluster) Plan {
		plan, done, active := c.Plan(), 0, len(c.Slots) > 0
		checkRest(t, c, plan, &parts)
		for i := range c.Nodes {
			active = active || !c.AtRest(&c.Nodes[i])
			if c.Nodes[i].UpToDate() {
				done++
			}
		}
		if active {
			plans.Add(1)
			return plan
		}
		rests.Add(1)
		later := *c
		later.Now = c.Now.Add(24 * time.Hour)
		if tomorrow := later.Plan(); !reflect.DeepEqual(tomorrow, plan) {
			t.Errorf("all nodes are at rest, but a day later the plan is %+v\nof %+v", tomorrow, c)
		}
		if want := (Plan{Report: Report{Nodes: map[string]Progress{}, Done: done}}); !reflect.DeepEqual(plan, want) {
			t.Errorf("all nodes are at rest, %d of them up to date, but the plan is %+v\nof %+v", done, plan, c)
		}
		return plan
	}
	for _, setting := range chance.Part(t, "settings at rest", settings, 2, nameOfSetting) {
		if _, err := setting.explore(checked, 2, 1); err != nil {
			t.Fatalf("%s: %v", setting.name, err)
		}
	}
	if rests.Load() == 0 || plans.Load() == 0 || parts.Load() == 0 {
		t.Errorf("%d plans at rest and %d others were checked", rests.Load(), plans.Load())
	}
	t.Logf("%d plans at rest, %d others, %d of a part of the nodes", rests.Load(), plans.Load(), parts.Load())
}

func nameOfSetting(s setting) string { return s.name }

// checkRest checks that a plan with sums of the nodes at rest is the plan with each of them, and counts those plans
// that have any.
func checkRest(t *testing.T, c *Cluster, plan Plan, parts *atomic.Int64) {
	t.Helper()
	others := withoutResting(c)
	if of := others.Plan(); !reflect.DeepEqual(of, plan) {
		t.Errorf("with sums of the nodes at rest the plan is %+v, and with each of them %+v\nof %+v", of, plan, c)
	}
	if len(others.Nodes) < len(c.Nodes) {
		parts.Add(1)
	}
}

// withoutResting returns the cluster with the nodes at rest that have no slot in its Rest. Which those are is known of
// each node alone.
func withoutResting(c *Cluster) *Cluster {
	alone, others := *c, *c
	alone.Slots, others.Nodes = nil, nil
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if _, granted := c.Slots[n.Name]; granted || !alone.AtRest(n) {
			others.Nodes = append(others.Nodes, *n)
			continue
		}
		others.Rest.Add(new(n.Resting()))
	}
	return &others
}

// randomNode returns a node in one of the situations that matter to the budgets, at rest or not.
func randomNode(random *rand.Rand, name string) Node {
	w := &world{now: epoch}
	n := w.newMachine(name, "a").Node
	n.UID, n.GPUReady = types.UID(name), random.IntN(3) > 0
	n.Group = []string{"", "pool"}[random.IntN(2)]
	n.Installs, n.Unschedulable = random.IntN(4) > 0, random.IntN(5) == 0
	n.KubeletReady, n.MIG.Partitioned = random.IntN(6) > 0, random.IntN(2) == 0
	since := epoch.Add(-time.Duration(1+random.IntN(100)) * time.Minute)
	switch random.IntN(6) {
	case 0:
		n.Target = "b"
		n.Record = &Record{UID: n.UID, Round: 1, State: StateRequired, Since: since, Target: "b"}
	case 1:
		n.Target, n.Unschedulable = "b", true
		n.Record = &Record{
			UID: n.UID, Round: 1, State: StatePodRestart, Since: epoch, Started: since, Target: "b", Cordoned: true, Pulled: "b",
		}
	case 2:
		n.Record = &Record{UID: n.UID, Round: 1, State: StateDone, Since: epoch, Started: since, Target: "a"}
	case 3:
		n.State = "resting"
	case 4:
		n.MIG.Wanted, n.MIG.Idle = "all-balanced", true
	}
	return n
}

// Whatever nodes there are, a plan with the sums of those at rest is the plan with each of them, also after others have
// joined and left. A copy of the sums stays what it was.
func TestRestStandsForItsNodes(t *testing.T) {
	g := NewWithT(t)
	random, rested := chance.Of(t, t.Name()), 0
	for range 1000 {
		policy := Policy{
			Auto: true, MaxParallel: random.IntN(4), MaxUnavailable: intstr.FromInt(random.IntN(8)), DriverTimeout: time.Hour,
		}
		c := &Cluster{Now: epoch, Slots: Slots{}, Policies: map[string]Policy{"": policy, "pool": policy}}
		for i := range 3 + random.IntN(20) {
			c.Nodes = append(c.Nodes, randomNode(random, fmt.Sprintf("node-%02d", i)))
		}
		others := withoutResting(c)
		rested += len(c.Nodes) - len(others.Nodes)
		want := c.Plan()
		g.Expect(others.Plan()).To(Equal(want))

		// Others join and leave again, in another order.
		changed := *others
		changed.Rest = others.Rest.Copy()
		joined := make([]Resting, 5)
		for i := range joined {
			joined[i] = new(randomNode(random, fmt.Sprintf("node-%02d-joins", i))).Resting()
			changed.Rest.Add(&joined[i])
		}
		g.Expect(others.Plan()).To(Equal(want), "the sums that were copied")
		random.Shuffle(len(joined), func(i, j int) { joined[i], joined[j] = joined[j], joined[i] })
		for i := range joined {
			changed.Rest.Remove(&joined[i])
		}
		g.Expect(changed.Plan()).To(Equal(want), "after others have left")
	}
	g.Expect(rested).To(BeNumerically(">", 1000))
}

// What a plan has to do something for is not at rest, whatever the other nodes do.
func TestAtRest(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Node)
		want   bool
	}{
		"a driver that is up to date":      {change: func(*Node) {}, want: true},
		"no driver yet":                    {change: func(n *Node) { n.Driver = nil }, want: true},
		"no driver of the operator":        {change: func(n *Node) { n.Installs = false }, want: true},
		"a label of a finished upgrade":    {change: func(n *Node) { n.State = StateDone }, want: true},
		"a cordon":                         {change: func(n *Node) { n.Unschedulable = true }, want: true},
		"a driver that is not ready":       {change: func(n *Node) { n.Driver.Ready = false }, want: true},
		"an outdated driver":               {change: func(n *Node) { n.Target = "c" }},
		"another driver pool":              {change: func(n *Node) { n.MoveTo = "pool" }},
		"an outdated driver, without auto": {change: func(n *Node) { n.Target, n.Group = "c", "manual" }},
		"a request":                        {change: func(n *Node) { n.Requested = true }},
		"a label of an upgrade":            {change: func(n *Node) { n.State = StateDrain }},
		"an unknown label":                 {change: func(n *Node) { n.State = "resting" }},
		"a record of an upgrade":           {change: func(n *Node) { n.Record = &Record{UID: n.UID, State: StateDrain} }},
		"a record that cannot be read":     {change: func(n *Node) { n.Unreadable = "no JSON" }},
		"a record copied from another node": {
			change: func(n *Node) { n.Record = &Record{UID: "other", State: StateDrain} }, want: true,
		},
		"a pod that pulls": {change: func(n *Node) { n.Pull = &Pod{Name: "pull"} }},
		"a driver that waits to unload an earlier one since a boot": {change: func(n *Node) {
			n.Record = &Record{UID: n.UID, State: StateDone, Target: "a", BootID: "boot-0"}
			n.Driver.Ready, n.Driver.Unloading = false, true
		}},
		"a driver that waits to unload an earlier one of the same target": {change: func(n *Node) {
			n.Record = &Record{UID: n.UID, State: StateDone, Target: n.Target, BootID: n.BootID}
			n.Driver.Ready, n.Driver.Unloading = false, true
		}, want: true},
		"a MIG layout that is wanted":        {change: func(n *Node) { n.MIG.Wanted = "all-balanced" }},
		"a record of a drain":                {change: func(n *Node) { n.MIG.Recorded = true }},
		"a drain that cannot be read":        {change: func(n *Node) { n.MIG.Recorded, n.MIG.Unreadable = true, true }},
		"a MIG layout that is being applied": {change: func(n *Node) { n.MIG.Changing = true }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{now: epoch}
			n := w.newMachine("a", "b").Node
			n.Group = modelGroup
			test.change(&n)
			c := &Cluster{Now: epoch, Policies: map[string]Policy{
				modelGroup: {Auto: true, DriverTimeout: time.Hour}, "manual": {},
			}}
			if got := c.AtRest(&n); got != test.want {
				t.Errorf("at rest: %t, want %t", got, test.want)
			}
		})
	}
}

// A slot of a node ends with a plan.
func TestANodeWithASlotIsNotAtRest(t *testing.T) {
	w := &world{now: epoch}
	n := w.newMachine("a", "b").Node
	c := &Cluster{Now: epoch, Slots: Slots{"a": {UID: n.UID, Round: 1}}}
	if c.AtRest(&n) {
		t.Error("a node with a slot is at rest")
	}
}
