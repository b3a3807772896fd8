package upgrade

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// forgedRounds is for how many passes another client writes slots again and again, and forgedSteps the most passes and
// waits until all nodes are done.
const forgedRounds, forgedSteps = 12, 400

// TestForgedSlots: whatever slots another client writes, also for the rounds that the nodes are in, no more nodes begin
// than the budget allows, none while upgrades are paused, and all are done in the end.
func TestForgedSlots(t *testing.T) {
	for _, setting := range append(slices.Clone(wedgeSettings),
		setting{name: "two at a time, two unavailable", parallel: 2, unavailable: 2, pulls: true},
		setting{name: "three at a time, one unavailable", parallel: 3, unavailable: 1},
		setting{name: "MIG layouts, three at a time, two unavailable", parallel: 3, unavailable: 2, layouts: true},
	) {
		t.Run(setting.name, func(t *testing.T) {
			roots, err := setting.roots(newExplorer(shipped, 0))
			if err != nil {
				t.Fatal(err)
			}
			for _, root := range roots {
				for _, ahead := range []int64{0, 1, 1000} {
					for _, paused := range []bool{false, true} {
						if err := root.withForgedSlots(ahead, paused); err != nil {
							t.Fatalf("slots %d rounds ahead, paused %t: %v\nin\n%s", ahead, paused, err, root)
						}
					}
				}
			}
		})
	}
}

// withForgedSlots lets another client write the slot of each node that has not begun, before each of some passes.
// paused: upgrades are paused during these passes.
func (s *state) withForgedSlots(ahead int64, paused bool) error {
	s = s.clone()
	s.path = nil
	for step := range forgedSteps {
		forges := step < forgedRounds
		s.setPolicy(func(p *Policy) { p.Paused = paused && forges })
		if forges {
			s.forge(ahead)
		} else if s.done() {
			return nil
		}
		before := *s.clone()
		moved, err := s.round()
		if err == nil {
			err = s.beganWithin(&before)
		}
		if err != nil {
			return fmt.Errorf("%w\nthe nodes are\n%s", err, s)
		}
		if moved || forges {
			continue
		}
		plan := shipped(s.cluster())
		if plan.Until.IsZero() {
			return fmt.Errorf("the nodes wait for good: %+v\n%s", plan.Report.Nodes, s)
		}
		s.now = plan.Until
	}
	return fmt.Errorf("the nodes are not done\n%s", s)
}

// forge writes the slots of all nodes that have not begun: for the round that they are in or for a later one, and for
// the MIG layout that they wait for.
func (s *state) forge(ahead int64) {
	s.slots = maps.Clone(s.slots)
	for i := range s.machines {
		switch m := &s.machines[i]; {
		case m.hasBegun():
		case s.layout == "":
			s.slots[m.Name] = Slot{UID: m.UID, Round: m.round() + ahead}
		case s.wanted(m) != "":
			s.slots[m.Name] = Slot{UID: m.UID, Layout: s.wanted(m), Since: s.now, Evict: s.evicts}
		}
	}
}

// hasBegun reports whether the machine is upgraded, drained or partitioned now.
func (m *machine) hasBegun() bool {
	return m.Record != nil && m.Record.UID == m.UID && m.Record.State.InProgress() ||
		m.MIG.Drain != nil && m.MIG.Drain.State.InProgress() || m.MIG.Changing || m.MIG.Requested != "" && !m.MIG.Ended
}

// begins reports whether the machine has begun since it was this one, whose driver worked: any budget lets a broken one
// begin.
func (m *machine) begins(was *machine) bool {
	return m.hasBegun() && !was.hasBegun() && !was.isBroken()
}

// beganWithin checks the nodes that have begun since before against the budget, independently of the planner.
func (s *state) beganWithin(before *state) error {
	busy, unavailable := 0, 0
	var began []string
	for i := range s.machines {
		m, was := &s.machines[i], &before.machines[i]
		if m.hasBegun() {
			busy++
		}
		if m.hasBegun() || m.isUnavailable() {
			unavailable++
		}
		if m.begins(was) {
			began = append(began, m.Name)
		}
	}
	policy := s.policy()
	switch {
	case len(began) == 0:
		return nil
	case policy.Paused && s.layout == "":
		return fmt.Errorf("%v begin though upgrades are paused", began)
	case busy > policy.MaxParallel:
		return fmt.Errorf("%v begin beyond maxParallelUpgrades %d", began, policy.MaxParallel)
	case unavailable > policy.MaxUnavailable.IntValue():
		return fmt.Errorf("%v begin beyond maxUnavailable %s", began, policy.MaxUnavailable.String())
	}
	return nil
}
