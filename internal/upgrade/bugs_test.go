package upgrade

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// bug is a planner with a mistake that the model has to notice, and what it then reports.
type bug struct {
	name   string
	plan   planner
	report string
}

// steps changes each step of the shipped planner.
func steps(change func(n *Node, step *Step)) planner {
	return func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range plan.Steps {
			change(c.node(plan.Steps[i].Node), &plan.Steps[i])
		}
		return plan
	}
}

// patches changes each patch of the shipped planner that leads to a state.
func patches(to State, change func(n *Node, patch *Patch)) planner {
	return steps(func(n *Node, step *Step) {
		if step.Patch != nil && step.Patch.Record != nil && step.Patch.Record.State == to {
			record := *step.Patch.Record
			step.Patch.Record = &record
			change(n, step.Patch)
		}
	})
}

// layoutPatches changes each patch of the shipped planner for a MIG layout.
func layoutPatches(change func(n *Node, patch *LayoutPatch)) planner {
	return steps(func(n *Node, step *Step) {
		if step.Action != ActionLayout {
			return
		}
		if step.Layout.Drain != nil {
			step.Layout.Drain = new(*step.Layout.Drain)
		}
		change(n, step.Layout)
	})
}

// sees changes what the shipped planner sees of each node.
func sees(change func(c *Cluster, n *Node)) planner {
	return func(c *Cluster) Plan {
		seen := *c
		seen.Nodes = append([]Node{}, c.Nodes...)
		for i := range seen.Nodes {
			change(c, &seen.Nodes[i])
		}
		return seen.Plan()
	}
}

func (c *Cluster) node(name string) *Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	panic("no node " + name)
}

// record changes the record that the planner sees, if it is in one of the states.
func record(n *Node, change func(*Record), states ...State) {
	for _, state := range states {
		if n.Record != nil && n.Record.State == state {
			r := *n.Record
			change(&r)
			n.Record = &r
			return
		}
	}
}

var bugs = []bug{
	{"it uncordons whoever has cordoned", patches(StateDone, func(n *Node, p *Patch) {
		if n.Unschedulable {
			p.Unschedulable = new(false)
		}
	}), "the cordon of another client is undone"},
	{"it takes a cordon that it finds for its own", patches(StatePodDeletion, func(_ *Node, p *Patch) {
		p.Record.Cordoned = true
	}), "the cordon of another client is undone"},
	{"it forgets that it has cordoned", patches(StatePodRestart, func(_ *Node, p *Patch) {
		p.Record.Cordoned = false
	}), "the nodes are not done"},
	{"it does not record that another client has uncordoned", func(c *Cluster) Plan {
		plan := c.Plan()
		plan.Steps = slices.DeleteFunc(plan.Steps, func(step Step) bool {
			p := step.Patch
			return p != nil && p.Record != nil && p.Event == "" && p.Record.State != StateRequired
		})
		return plan
	}, "has no deadline"},
	{"it does not cordon", steps(func(_ *Node, s *Step) {
		if s.Patch != nil && s.Patch.Unschedulable != nil && *s.Patch.Unschedulable {
			s.Patch.Unschedulable = nil
		}
	}), "an upgrade starts without a cordon"},
	{"it uncordons when the driver is ready", patches(StateValidation, func(_ *Node, p *Patch) {
		p.Unschedulable = new(false)
	}), "uncordoned before its new driver is validated"},
	{"it takes the validation of the old driver", sees(func(_ *Cluster, n *Node) {
		if n.Validator != nil && n.Driver != nil {
			validator := *n.Validator
			validator.Created = n.Driver.Created.Add(time.Second)
			n.Validator, n.Dependants = &validator, nil
		}
	}), "uncordoned before its new driver is validated"},
	{"it uncordons when the new driver fails", patches(StateFailed, func(_ *Node, p *Patch) {
		p.Unschedulable = new(false)
	}), "uncordoned before its new driver is validated"},
	{"it forgets in the next round that the driver was replaced", sees(func(_ *Cluster, n *Node) {
		record(n, func(r *Record) { r.Restarted = false }, StateRequired, StatePodDeletion)
	}), "uncordoned before its new driver is validated"},
	{"it deletes the driver pod with GPU users", sees(func(_ *Cluster, n *Node) {
		if n.Workload != nil && n.Record.State == StatePodRestart {
			n.Workload = &Workload{}
		}
	}), "the driver pod is deleted while pods use the GPUs"},
	{"it evicts before it cordons", func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range plan.Steps {
			n := c.node(plan.Steps[i].Node)
			if p := plan.Steps[i].Patch; p != nil && p.State == StatePodDeletion && n.Workload != nil {
				plan.Steps[i] = Step{Node: n.Name, Action: ActionEvict, Pods: n.Workload.Users}
			}
		}
		return plan
	}, "pods are evicted outside an upgrade"},
	{"it evicts after an uncordon", sees(func(_ *Cluster, n *Node) {
		if n.Record != nil && n.Record.State == StatePodDeletion {
			n.Unschedulable = true
		}
	}), "pods are evicted from a node that is not cordoned"},
	{"it gives each waiting node a slot", func(c *Cluster) Plan {
		plan := c.Plan()
		slots := maps.Clone(plan.Slots)
		if slots == nil {
			slots = maps.Clone(c.Slots)
		}
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.Record != nil && n.Record.State == StateRequired && !c.Slots.Valid(n) {
				slots[n.Name] = Slot{UID: n.UID, Round: n.Record.Round}
			}
		}
		if !maps.Equal(slots, c.Slots) {
			plan.Slots = slots
		}
		return plan
	}, "gets a slot"},
	{"it counts only its own nodes as unavailable", sees(func(_ *Cluster, n *Node) {
		n.GPUReady = n.KubeletReady
		if record := n.ownRecord(); record == nil || !record.State.InProgress() {
			n.Unschedulable = false
		}
	}), "gets a slot beyond maxUnavailable"},
	{"it drops the slot before the node is validated", func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.Record != nil && n.Record.State == StateValidation && c.Slots[n.Name].UID != "" {
				slots := maps.Clone(c.Slots)
				delete(slots, n.Name)
				plan.Slots = slots
			}
		}
		return plan
	}, "is taken away"},
	{"it gives a slot back without a new round", func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range plan.Steps {
			p := plan.Steps[i].Patch
			n := c.node(plan.Steps[i].Node)
			waits := n.Record != nil && n.Record.State == StateRequired
			if waits && p != nil && p.Record != nil && p.Record.Round > n.Record.Round {
				record := *p.Record
				record.Round = n.Record.Round
				p.Record = &record
			}
		}
		return plan
	}, "do not come to rest"},
	{"it tries a failed round again in the same round", patches(StateRequired, func(n *Node, p *Patch) {
		if n.Record != nil && n.Record.State == StateFailed {
			p.Record.Round = n.Record.Round
		}
	}), "a round starts twice"},
	{"it pulls again at once after a failed pull", patches(StateRequired, func(_ *Node, p *Patch) {
		p.Record.Reason = ""
	}), "do not come to rest"},
	{"it does not end the request", steps(func(_ *Node, s *Step) {
		if s.Patch != nil {
			s.Patch.EndRequest = false
		}
	}), "do not come to rest"},
	{"it waits for the driver without a deadline", func(c *Cluster) Plan {
		endless := *c
		policy := c.Policies[modelGroup]
		policy.DriverTimeout = 0
		endless.Policies = map[string]Policy{modelGroup: policy}
		return endless.Plan()
	}, "has no deadline"},
	{"it wakes up after a deadline", func(c *Cluster) Plan {
		plan := c.Plan()
		if !plan.Until.IsZero() {
			plan.Until = plan.Until.Add(time.Minute)
		}
		return plan
	}, "nothing wakes the operator"},
	{"it starts while paused", func(c *Cluster) Plan {
		running := *c
		policy := c.Policies[modelGroup]
		policy.Paused = false
		running.Policies = map[string]Policy{modelGroup: policy}
		return running.Plan()
	}, "which the policy or a label forbids"},
	{"it ignores that a node is excluded", sees(func(_ *Cluster, n *Node) {
		n.Skip = false
	}), "which the policy or a label forbids"},
	{"it never tries again", patches(StateFailed, func(_ *Node, p *Patch) {
		p.Record.RetryAt = time.Time{}
	}), "is never tried again"},
	{"it stays in pod-restart-required with the pod of an earlier target", sees(func(_ *Cluster, n *Node) {
		if n.Record != nil && n.Record.State == StatePodRestart && n.Driver != nil && n.Driver.UID != n.Record.DriverPod {
			driver := *n.Driver
			driver.Digest = n.Target
			n.Driver = &driver
		}
	}), "do not come to rest"},
	{"it takes the images of an earlier target for those of the new one", sees(func(_ *Cluster, n *Node) {
		if n.Record != nil && n.Record.State.InProgress() {
			record := *n.Record
			record.Pulled = n.Target
			n.Record = &record
		}
	}), "though the images of the new driver are not pulled"},
}

// layoutBugs are those of planners that drain nodes for MIG layouts.
var layoutBugs = []bug{
	{"it uncordons after a layout whoever has cordoned", layoutPatches(func(n *Node, p *LayoutPatch) {
		if p.Drain == nil && n.relayouting() && n.Unschedulable {
			p.Unschedulable = new(false)
		}
	}), "the cordon of another client is undone"},
	{"it takes a cordon that it finds for its own, for a layout", layoutPatches(func(_ *Node, p *LayoutPatch) {
		if p.Drain != nil && p.Drain.State.Evicts() {
			p.Drain.Cordoned = true
		}
	}), "the cordon of another client is undone"},
	{"it forgets with the request of a layout that it has cordoned", layoutPatches(func(_ *Node, p *LayoutPatch) {
		if p.Drain != nil && p.Request != "" {
			p.Drain.Cordoned = false
		}
	}), "the nodes are not done"},
	{"it does not cordon for a layout", layoutPatches(func(_ *Node, p *LayoutPatch) {
		if p.Drain != nil && p.Unschedulable != nil && *p.Unschedulable {
			p.Unschedulable = nil
		}
	}), "a drain begins without a cordon"},
	{"it requests a layout with GPU users", sees(func(_ *Cluster, n *Node) {
		if n.relayouting() && n.Workload != nil {
			n.Workload = &Workload{}
		}
	}), "a MIG layout is requested while pods use the GPUs"},
	{"it uncordons before the layout is applied", sees(func(_ *Cluster, n *Node) {
		if drain := n.ownDrain(); drain != nil && drain.State == DrainChanging {
			n.MIG.Ended = true
		}
	}), "the node is uncordoned while its MIG layout changes"},
	{"it evicts for a layout after an uncordon", sees(func(_ *Cluster, n *Node) {
		if n.relayouting() {
			n.Unschedulable = true
		}
	}), "pods are evicted from a node that is not cordoned"},
	{"it drops the slot of a node that is drained for a layout", func(c *Cluster) Plan {
		plan := c.Plan()
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.relayouting() && c.Slots[n.Name].UID != "" {
				slots := maps.Clone(c.Slots)
				delete(slots, n.Name)
				plan.Slots = slots
			}
		}
		return plan
	}, "is taken away"},
	{"it does not count a drained node", func(c *Cluster) Plan {
		seen := *c
		seen.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(n Node) bool { return n.relayouting() })
		plan, slots := c.Plan(), seen.Plan().Slots
		if slots == nil {
			return plan
		}
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.relayouting() {
				slots[n.Name] = n.MIG.Drain.slot()
			}
		}
		if !maps.Equal(slots, c.Slots) {
			plan.Slots = slots
		}
		return plan
	}, "gets a slot beyond"},
	{"it evicts for a layout without a deadline", func(c *Cluster) Plan {
		endless := *c
		policy := c.Policies[modelGroup]
		policy.PodDeletionTimeout = 0
		endless.Policies = map[string]Policy{modelGroup: policy}
		for i := range c.Nodes {
			if c.Nodes[i].upgrading() {
				return c.Plan()
			}
		}
		return endless.Plan()
	}, "for a MIG layout has no deadline"},
	{"it never drains again after a deadline", layoutPatches(func(_ *Node, p *LayoutPatch) {
		if p.Drain != nil {
			p.Drain.RetryAt = time.Time{}
		}
	}), "the nodes are not done"},
	{"it drains although a pod may not be evicted", sees(func(_ *Cluster, n *Node) {
		if n.Workload == nil || n.upgrading() {
			return
		}
		workload := *n.Workload
		workload.Users = slices.Clone(workload.Users)
		for i := range workload.Users {
			workload.Users[i].Forbidden = false
		}
		n.Workload = &workload
	}), "a drain begins though a pod may not be evicted"},
	{"it takes a paused MIG manager for none during a drain", sees(func(_ *Cluster, n *Node) {
		if n.relayouting() {
			n.MIG.Off = false
		}
	}), "the node is uncordoned while its MIG layout changes"},
	{"it takes a paused MIG manager for none after a drain", sees(func(_ *Cluster, n *Node) {
		if !n.relayouting() {
			n.MIG.Off = false
		}
	}), "a failed drain is forgotten while the MIG manager is paused"},
	{"it leaves a node cordoned whose MIG manager is gone", func(c *Cluster) Plan {
		plan := c.Plan()
		plan.Steps = slices.DeleteFunc(plan.Steps, func(step Step) bool {
			n := c.node(step.Node)
			return n.relayouting() && !n.MIG.Partitioned && !n.MIG.Off
		})
		return plan
	}, "has no deadline"},
}

// TestModelNoticesBugs tries one in eight bugs with -short, which chance selects: make test-full tries all.
func TestModelNoticesBugs(t *testing.T) {
	for _, bug := range tried(t, "bugs", bugs) {
		t.Run(bug.name, func(t *testing.T) { bug.isNoticed(t, false) })
	}
	for _, bug := range tried(t, "bugs of layouts", layoutBugs) {
		t.Run(bug.name, func(t *testing.T) { bug.isNoticed(t, true) })
	}
}

// tried are the bugs that this run tries.
func tried(t *testing.T, purpose string, all []bug) []bug {
	t.Helper()
	return chance.Part(t, purpose, all, (len(all)+7)/8, func(b bug) string { return b.name })
}

// isNoticed explores the settings with MIG layouts, or the others, until the model notices the bug.
func (b *bug) isNoticed(t *testing.T, layouts bool) {
	for _, setting := range settings {
		if setting.layouts != layouts {
			continue
		}
		e, err := setting.explore(b.plan, setting.depth, setting.faults)
		if err == nil {
			t.Logf("%s: not noticed in %d states", setting.name, len(e.distinct))
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		if !strings.Contains(err.Error(), b.report) {
			t.Fatalf("noticed for another reason: %v", err)
		}
		t.Logf("%s, %d states: %s", setting.name, len(e.distinct), first)
		return
	}
	t.Error("the model does not notice it")
}
