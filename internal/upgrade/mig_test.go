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

func with(n Node, change func(*Node)) Node {
	change(&n)
	return n
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
