package upgrade

import (
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// wants returns a node that works, and on which no pod uses the GPUs, for which the operator wants the layout b.
func wants(name string) Node {
	return Node{
		Name: name, UID: types.UID(name), KubeletReady: true, GPUReady: true,
		MIG: MIG{Partitioned: true, Requested: "a", Ended: true, Wanted: "b", Idle: true},
	}
}

// requested is the node after its layout was requested, and applied after the MIG manager has reported an outcome.
func requested(name string) Node {
	n := wants(name)
	n.MIG.Requested, n.MIG.Wanted, n.MIG.Ended, n.MIG.Idle = "b", "", false, false
	return n
}

func applied(name string) Node {
	n := requested(name)
	n.MIG.Ended = true
	return n
}

// withDriver is a node with a driver, whose GPUs cannot be partitioned.
func withDriver(name string) Node {
	return Node{Name: name, UID: types.UID(name), KubeletReady: true, GPUReady: true, Installs: true}
}

func with(n Node, change func(*Node)) Node {
	change(&n)
	return n
}

// evictable is a node whose GPUs a pod uses, which may be evicted.
func evictable(name string) Node {
	return with(wants(name), func(n *Node) { n.MIG.Idle, n.MIG.Evict = false, true })
}

// toEvictA is granted to the node a, a minute ago, for a layout before which pods are evicted.
func toEvictA() Slots {
	slot := granted(time.Minute, "a")["a"]
	slot.Evict = true
	return Slots{"a": slot}
}

// granted is a slot for the layout b of each node, granted some time ago.
func granted(ago time.Duration, names ...string) Slots {
	slots := Slots{}
	for _, name := range names {
		slots[name] = Slot{UID: types.UID(name), Layout: "b", Since: epoch.Add(-ago)}
	}
	return slots
}

func TestLayoutsAreChangedInTurn(t *testing.T) {
	upgrading := with(wants("c"), func(n *Node) {
		n.Installs, n.MIG = true, MIG{Partitioned: true}
		n.State = StatePodDeletion
		n.Record = &Record{UID: n.UID, Round: 1, State: StatePodDeletion}
		n.Unschedulable = true
	})
	for name, test := range map[string]struct {
		nodes       []Node
		slots       Slots
		parallel    int
		unavailable string
		// holders have a slot after the plan; requests are the nodes whose layout is requested.
		holders, requests []string
	}{
		"one at a time": {nodes: []Node{wants("a"), wants("b")}, holders: []string{"a"}},
		"two at a time": {
			nodes: []Node{wants("a"), wants("b"), wants("c")}, parallel: 2, holders: []string{"a", "b"},
		},
		"as many as may be unavailable": {
			nodes: []Node{wants("a"), wants("b")}, parallel: 2, unavailable: "1",
			holders: []string{"a"},
		},
		"a node whose GPUs cannot be used counts": {
			nodes:       []Node{wants("a"), with(applied("b"), func(n *Node) { n.GPUReady = false })},
			unavailable: "1",
		},
		"a change by a user counts": {
			nodes:       []Node{wants("a"), with(applied("b"), func(n *Node) { n.MIG.Changing = true })},
			unavailable: "1",
		},
		"a part of the nodes with a MIG manager": {
			nodes: []Node{wants("a"), wants("b"), withDriver("c"), withDriver("d"), withDriver("e")}, parallel: 9,
			unavailable: "50%", holders: []string{"a"},
		},
		"a driver upgrade counts": {nodes: []Node{wants("a"), upgrading}, holders: []string{"c"}},
		"a busy node holds up no other": {
			nodes: []Node{with(wants("a"), func(n *Node) { n.MIG.Idle = false }), wants("b")}, holders: []string{"b"},
		},
		"a node whose kubelet does not work": {
			nodes: []Node{with(wants("a"), func(n *Node) { n.KubeletReady = false })},
		},
		"requested with a slot": {
			nodes: []Node{wants("a"), wants("b")}, slots: granted(0, "a"), holders: []string{"a"}, requests: []string{"a"},
		},
		"busy again before it was requested": {
			nodes: []Node{with(wants("a"), func(n *Node) { n.MIG.Idle = false })}, slots: granted(0, "a"),
			holders: []string{"a"},
		},
		"pods that may be evicted": {
			nodes: []Node{evictable("a"), wants("b")}, slots: toEvictA(), holders: []string{"a"},
		},
		"pods that may not be evicted any more hold up no other node": {
			nodes: []Node{with(evictable("a"), func(n *Node) { n.MIG.Evict = false }), wants("b")},
			slots: toEvictA(), holders: []string{"b"},
		},
		"nor do those of a node that is excluded since": {
			nodes: []Node{with(evictable("a"), func(n *Node) { n.Skip = true }), wants("b")},
			slots: toEvictA(), holders: []string{"b"},
		},
		"no outcome yet after an eviction": {
			nodes: []Node{with(requested("a"), func(n *Node) { n.MIG.Evict = false }), wants("b")},
			slots: toEvictA(), holders: []string{"a"},
		},
		"no outcome yet": {
			nodes: []Node{requested("a"), wants("b")}, slots: granted(time.Minute, "a"), holders: []string{"a"},
		},
		"an outcome": {nodes: []Node{applied("a"), wants("b")}, slots: granted(time.Minute, "a"), holders: []string{"b"}},
		"no outcome for long": {
			nodes: []Node{requested("a"), wants("b")}, slots: granted(time.Hour, "a"), holders: []string{"b"},
		},
		"another layout is wanted": {
			nodes: []Node{with(wants("a"), func(n *Node) { n.MIG.Wanted = "c" })}, slots: granted(0, "a"),
			holders: []string{"a"},
		},
		"another node of the name": {
			nodes: []Node{with(requested("a"), func(n *Node) { n.UID = "other" })}, slots: granted(0, "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			unavailable := intstr.FromString("100%")
			if test.unavailable != "" {
				unavailable = intstr.Parse(test.unavailable)
			}
			c := Cluster{
				Now: epoch, Nodes: test.nodes, Slots: test.slots,
				Policies: map[string]Policy{"": {MaxParallel: max(test.parallel, 1), MaxUnavailable: unavailable}},
			}
			plan := c.Plan()
			slots := plan.Slots
			if slots == nil {
				slots = c.Slots
			}
			if got := slices.Sorted(maps.Keys(slots)); !slices.Equal(got, test.holders) {
				t.Errorf("slots of %v, want %v", got, test.holders)
			}
			var requests []string
			for _, step := range plan.Steps {
				if step.Action == ActionLayout {
					requests = append(requests, step.Node)
				}
			}
			if !slices.Equal(requests, test.requests) {
				t.Errorf("requests for %v, want %v", requests, test.requests)
			}
		})
	}
}

// Nodes whose driver the operator does not install are no part of what driver upgrades may make unavailable, nor are
// nodes without a MIG manager of what layouts may; the slots of both count for each.
func TestBudgetsOfDriversAndLayouts(t *testing.T) {
	c := Cluster{
		Now: epoch, Slots: granted(0, "layout-0"),
		Policies: map[string]Policy{"": {MaxUnavailable: intstr.FromString("50%")}},
		Nodes: []Node{
			withDriver("driver-0"), withDriver("driver-1"), with(withDriver("driver-2"), func(n *Node) { n.GPUReady = false }),
			withDriver("driver-3"), wants("layout-0"), with(applied("layout-1"), func(n *Node) { n.GPUReady = false }),
		},
	}
	b := c.budget("")
	if b.drivers.size != 4 || b.drivers.limit != 2 || b.layouts.size != 2 || b.layouts.limit != 1 {
		t.Errorf("%d of %d nodes with drivers, %d of %d with a MIG manager, want 2 of 4 and 1 of 2", b.drivers.limit,
			b.drivers.size, b.layouts.limit, b.layouts.size)
	}
	if got := sortedKeys(b.drivers.unavailable.of); !slices.Equal(got, []string{"driver-2", "layout-0"}) {
		t.Errorf("drivers: %v are unavailable", got)
	}
	if got := sortedKeys(b.layouts.unavailable.of); !slices.Equal(got, []string{"layout-0", "layout-1"}) {
		t.Errorf("layouts: %v are unavailable", got)
	}
}

// A slot for a layout whose MIG manager reports no outcome ends by time alone.
func TestLayoutSlotsEnd(t *testing.T) {
	c := Cluster{
		Now: epoch, Nodes: []Node{requested("a"), requested("b"), wants("c")}, Slots: granted(5*time.Minute, "a"),
		Policies: map[string]Policy{"": {MaxParallel: 1, MaxUnavailable: intstr.FromString("100%")}},
	}
	c.Slots["b"] = granted(time.Minute, "b")["b"]
	until := c.Plan().Until
	if want := epoch.Add(10 * time.Minute); !until.Equal(want) {
		t.Fatalf("the plan changes at %v, want %v", until, want)
	}
	c.Now, c.Nodes[1] = until, applied("b")
	plan := c.Plan()
	if got := sortedKeys(plan.Slots); !slices.Equal(got, []string{"c"}) {
		t.Errorf("slots of %v afterwards, want c", got)
	}
}

// Only nodes that could get a layout now depend on which pods use their GPUs.
func TestAwaitingTenants(t *testing.T) {
	for name, test := range map[string]struct {
		nodes    []Node
		slots    Slots
		parallel int
		want     []int
	}{
		"all that the budget allows one": {nodes: []Node{applied("a"), wants("b"), wants("c")}, want: []int{1, 2}},
		"one with a slot":                {nodes: []Node{wants("a"), wants("b")}, slots: granted(0, "a"), want: []int{0}},
		"none beside a layout that is applied": {
			nodes: []Node{requested("a"), wants("b")}, slots: granted(time.Minute, "a"),
		},
		"the others after a layout that takes too long": {
			nodes: []Node{requested("a"), wants("b")}, slots: granted(layoutTime, "a"), want: []int{1},
		},
		"as many layouts as are allowed at a time": {
			nodes: []Node{requested("a"), wants("b")}, slots: granted(time.Minute, "a"), parallel: 2, want: []int{1},
		},
		"none whose kubelet does not work": {
			nodes: []Node{with(wants("a"), func(n *Node) { n.KubeletReady = false })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Cluster{Now: epoch, Nodes: test.nodes, Slots: test.slots, Policies: map[string]Policy{
				"": {MaxParallel: max(test.parallel, 1), MaxUnavailable: intstr.FromString("100%")},
			}}
			if got := c.AwaitingTenants(); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
