package upgrade

import (
	"reflect"
	"sync/atomic"
	"testing"
	"time"
)

// In every state of the model: while all nodes are at rest and there are no slots, the plan is empty, and it counts the
// nodes that are up to date. Then no plan is computed.
func TestNodesAtRestNeedNoPlan(t *testing.T) {
	var rests, plans atomic.Int64
	checked := func(c *Cluster) Plan {
		plan, done, active := c.Plan(), 0, len(c.Slots) > 0
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
	for _, setting := range settings {
		if _, err := setting.explore(checked, 2, 1); err != nil {
			t.Fatalf("%s: %v", setting.name, err)
		}
	}
	if rests.Load() == 0 || plans.Load() == 0 {
		t.Errorf("%d plans at rest and %d others were checked", rests.Load(), plans.Load())
	}
	t.Logf("%d plans at rest, %d others", rests.Load(), plans.Load())
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
