package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// partitioner is what is only known here of the MIG layout of a machine.
type partitioner struct {
	// written is the layout that the operator has requested last. seen is the one that the MIG manager works on, or has
	// worked on last; working: it does so now.
	written, seen string
	working       bool
}

// wanted is the layout that the operator is to request: none if a person has set the label.
func (w *world) wanted(m *machine) string {
	requested := m.MIG.Requested
	if !m.MIG.Partitioned || w.layout == requested || requested != "" && requested != m.mig.written {
		return ""
	}
	return w.layout
}

// readUsers reads the pods of users where a MIG layout depends on them.
func (w *world) readUsers(c *Cluster) {
	awaiting := c.AwaitingTenants()
	for i := range c.Nodes {
		n := &c.Nodes[i]
		m := w.machine(n.Name)
		if slices.Contains(awaiting, i) {
			n.MIG.Idle = m.users() == 0
		}
		if c.NeedsDrained(n) {
			n.Workload = m.workload()
		}
	}
}

// layoutPatch changes the Node, and returns an error if that breaks a rule.
func (w *world) layoutPatch(m *machine, patch *LayoutPatch) error {
	if err := w.checkDrain(m, patch); err != nil {
		return err
	}
	if u := patch.Unschedulable; u != nil && !*u {
		if err := w.checkUncordon(m); err != nil {
			return err
		}
	}
	m.version++
	if u := patch.Unschedulable; u != nil {
		m.Unschedulable = *u
	}
	m.MIG.Drain, m.MIG.Recorded = patch.Drain, patch.Drain != nil
	if patch.Request == "" {
		return nil
	}
	switch {
	case m.users() > 0:
		return errors.New("a MIG layout is requested while pods use the GPUs")
	case patch.Drain != nil && !m.Unschedulable:
		return errors.New("a MIG layout is requested on a drained node that is not cordoned")
	}
	m.MIG.Requested, m.mig.written, m.MIG.Ended, m.MIG.Changing = patch.Request, patch.Request, false, false
	return nil
}

// checkDrain checks a patch with which a drain begins, or with which one that has failed is forgotten.
func (w *world) checkDrain(m *machine, patch *LayoutPatch) error { //nolint:gocyclo // a list of rules
	if before := m.ownDrain(); patch.Drain == nil && before != nil && before.State == DrainFailed && m.MIG.Off {
		return errors.New("a failed drain is forgotten while the MIG manager is paused")
	}
	if patch.Drain == nil || !patch.Drain.State.InProgress() || m.relayouting() {
		return nil
	}
	slot := w.slots[m.Name]
	cordons := patch.Unschedulable != nil && *patch.Unschedulable
	switch {
	case slot.Layout == "" && !w.lost:
		return errors.New("a drain begins without a slot")
	case !cordons && !m.Unschedulable:
		return errors.New("a drain begins without a cordon")
	case m.upgrading():
		return errors.New("a drain begins during an upgrade")
	case slices.ContainsFunc(m.pods, func(p pod) bool { return p.Forbidden && !(p.job && w.policy().WaitsForJobs) }):
		return errors.New("a drain begins though a pod may not be evicted")
	}
	return nil
}

// checkUncordon checks that a node may be uncordoned after the change of its layout.
func (w *world) checkUncordon(m *machine) error {
	drain := m.MIG.Drain
	changes := (m.MIG.Partitioned || m.MIG.Off) && drain != nil && drain.State == DrainChanging &&
		m.MIG.Requested == drain.Layout &&
		!m.MIG.Ended && w.now.Before(drain.Since.Add(layoutTime))
	switch {
	case m.foreign:
		return errors.New("the cordon of another client is undone")
	case m.replaced && m.Installs && !m.validated():
		return errors.New("the node is uncordoned before its new driver is validated")
	case changes:
		return errors.New("the node is uncordoned while its MIG layout changes")
	}
	return nil
}

// nextOfLayout is what the MIG manager does next. It finishes a change before it begins another one.
func (m *machine) nextOfLayout() string {
	switch {
	case !m.MIG.Partitioned:
		return ""
	case m.mig.working:
		return "MIG manager ends"
	case m.MIG.Requested != "" && m.MIG.Requested != m.mig.seen:
		return "MIG manager begins"
	default:
		return ""
	}
}

func (m *machine) changeLayout(what string) {
	m.version++
	begins := what == "MIG manager begins"
	m.mig.working, m.MIG.Changing, m.MIG.Ended = begins, begins, !begins
	if begins {
		m.mig.seen = m.MIG.Requested
	}
}

// layoutKey adds what counts of the MIG layout of a machine.
func (s *state) layoutKey(b *keyText, m *machine) {
	b.word(m.MIG.Requested)
	b.flag(m.MIG.Partitioned, m.MIG.Off, m.MIG.Ended, m.MIG.Changing, m.mig.written == m.MIG.Requested,
		m.mig.seen == m.MIG.Requested, m.mig.working)
	slot := s.slots[m.Name]
	b.word(slot.Layout)
	b.flag(s.now.Sub(slot.Since) >= layoutTime)
	if drain := m.MIG.Drain; drain != nil {
		b.word(string(drain.State))
		b.word(drain.Layout)
		b.flag(drain.Cordoned, drain.Message == "", drain.RetryAt.IsZero(), s.now.Before(drain.RetryAt),
			s.now.Sub(drain.Since) >= layoutTime, drain.Granted.Equal(slot.Since), drain.isUndone())
	}
}

// isUndone reports whether the drain has failed because another client has uncordoned the node.
func (d *Drain) isUndone() bool { return strings.Contains(d.Message, "another client") }

// addHolder adds the machine if the slot for a MIG layout is one that it has already.
func (s *state) addHolder(m *machine, slot Slot, holders, unavailable map[string]bool) {
	if m.relayouting() || s.slots[m.Name] == slot {
		holders[m.Name], unavailable[m.Name] = true, true
	}
}

// checkLayoutSlots checks new slots for MIG layouts, after those for drivers, independently of the planner. Of the
// other nodes, those without a MIG manager do not count.
func (s *state) checkLayoutSlots(slots Slots, holders map[string]bool) error { //nolint:gocyclo // a list of rules
	unavailable := maps.Clone(holders)
	for i := range s.machines {
		m := &s.machines[i]
		if m.MIG.Partitioned && m.isUnavailable() {
			unavailable[m.Name] = true
		}
	}
	for i := range s.machines {
		m := &s.machines[i]
		slot, granted := slots[m.Name]
		switch {
		case m.relayouting() && !granted:
			return fmt.Errorf("the slot of %s is taken away", m.Name)
		case !granted || slot.Layout == "" || m.relayouting() || s.slots[m.Name] == slot:
			continue
		case s.wanted(m) != slot.Layout:
			return fmt.Errorf("%s gets a slot for a MIG layout that is not wanted", m.Name)
		}
		holders[m.Name], unavailable[m.Name] = true, true
		switch policy := s.policy(); {
		case len(holders) > policy.MaxParallel:
			return fmt.Errorf("%s gets a slot beyond maxParallelUpgrades", m.Name)
		case len(unavailable) > policy.MaxUnavailable.IntValue() && !m.isBroken():
			return fmt.Errorf("%s gets a slot beyond maxUnavailable", m.Name)
		}
	}
	return nil
}

// layoutsAtRest checks that each node which is drained has a deadline.
func (s *state) layoutsAtRest(plan *Plan) error {
	for i := range s.machines {
		m := &s.machines[i]
		if m.relayouting() && !m.upgrading() && plan.Until.IsZero() {
			return fmt.Errorf("the drain of %s for a MIG layout has no deadline", m.Name)
		}
	}
	return nil
}

// cureLayout removes what keeps the layout from being changed: pods that are not evicted any more are ended.
func (s *state) cureLayout(m *machine) {
	if s.layout == "" {
		return
	}
	m.MIG.Partitioned, m.MIG.Off = true, false
	m.pods = slices.DeleteFunc(slices.Clone(m.pods), func(p pod) bool { return p.Forbidden })
	drain := m.MIG.Drain
	if !s.evicts || drain != nil && drain.State == DrainFailed && drain.isUndone() {
		m.pods = nil
	}
}

// hasLayout reports whether nothing is left to do for the layout of the machine.
func (w *world) hasLayout(m *machine) bool {
	return w.wanted(m) == "" && m.MIG.Drain == nil && m.nextOfLayout() == ""
}
