package upgrade

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// explorer explores the states of the model.
type explorer struct {
	plan      planner
	maxFaults int
	seed      maphash.Seed
	// expanded are the states that were met, with their faults, and distinct those without them.
	expanded, distinct map[uint64]bool
	// settled are the states from which everything ends well.
	settledLock sync.Mutex
	settled     map[uint64]bool
	// transitions that were observed.
	transitionsLock sync.Mutex
	transitions     map[[2]State]bool
}

func newExplorer(plan planner, maxFaults int) *explorer {
	return &explorer{
		plan: plan, maxFaults: maxFaults, seed: maphash.MakeSeed(), expanded: map[uint64]bool{},
		distinct: map[uint64]bool{}, settled: map[uint64]bool{}, transitions: map[[2]State]bool{},
	}
}

func (e *explorer) hash(key string) uint64 { return maphash.String(e.seed, key) }

// run explores all states that are at most depth events from the roots.
func (e *explorer) run(roots []*state, depth int) error {
	frontier := e.unmet(roots)
	for level := 0; len(frontier) > 0; level++ {
		next, err := e.level(frontier, level < depth)
		if err != nil {
			return err
		}
		frontier = e.unmet(next)
	}
	return nil
}

// workers is how many parts of the states are searched at a time. Each reports its first fault: were the number that of
// the cores, the faults would be others on another machine.
const workers = 16

// level checks the states of the frontier, on all cores, and returns their successors.
func (e *explorer) level(frontier []*state, expand bool) ([]*state, error) {
	found, errs := make([][]*state, workers), make([]error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < len(frontier); i += workers {
				s := frontier[i]
				if err := e.endsWell(s); err != nil {
					errs[worker] = fmt.Errorf("%w\nin\n%s\nafter\n%s", err, s, s.path)
					return
				}
				if !expand {
					continue
				}
				successors, err := e.successors(s)
				if err != nil {
					errs[worker] = err
					return
				}
				found[worker] = append(found[worker], successors...)
			}
		})
	}
	group.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}

// unmet returns the states that were not met yet.
func (e *explorer) unmet(states []*state) []*state {
	var fresh []*state
	for _, s := range states {
		key := s.key()
		hash := e.hash(fmt.Sprint(s.faults, key))
		if e.expanded[hash] {
			continue
		}
		e.expanded[hash], e.distinct[e.hash(key)] = true, true
		fresh = append(fresh, s)
	}
	return fresh
}

// after returns the state after an event, which changes the copy that it gets.
func (s *state) after(what string, change func(*state) error) (*state, error) {
	c := s.clone()
	c.path = &event{s.path, what}
	if err := change(c); err != nil {
		return nil, fmt.Errorf("%w\nafter\n%s\n%s", err, c.path, s)
	}
	for i := range c.machines {
		if m := &c.machines[i]; m.validated() {
			m.replaced = false
		}
	}
	return c, c.withinLimits()
}

// withinLimits checks that no more nodes are upgraded than were ever allowed.
func (s *state) withinLimits() error {
	count := 0
	for i := range s.machines {
		if s.machines[i].upgrading() || s.machines[i].relayouting() {
			count++
		}
	}
	if count > s.peak && !s.lost {
		return fmt.Errorf("%d nodes are upgraded, though maxParallelUpgrades was %d at most\nafter\n%s\n%s", count, s.peak,
			s.path, s)
	}
	return nil
}

// successors returns the states after each event that can happen now.
func (e *explorer) successors(s *state) ([]*state, error) {
	all, err := e.planned(s)
	if err != nil {
		return nil, err
	}
	add := func(what string, change func(*state) error) {
		if err != nil {
			return
		}
		var next *state
		if next, err = s.after(what, change); err == nil {
			all = append(all, next)
		}
	}
	for _, h := range s.world.next() {
		add(s.machines[h.node].Name+": "+h.what, func(c *state) error { c.happen(h); return nil })
	}
	for i := range s.patches {
		if step := s.patchOf(i); step != nil {
			add(step.Node+": second manager: "+step.Why, func(c *state) error {
				c.patches = slices.Clone(c.patches)
				c.patches[i] = nil
				return c.apply(step)
			})
		}
	}
	if s.secondSlots() != "" {
		add("second manager: slots", func(c *state) error { c.slots, c.slots2 = c.slots2, nil; return nil })
	}
	if s.faults < e.maxFaults {
		e.addFaults(s, add)
	}
	return all, err
}

// addFaults adds the states after each fault that can happen now.
func (e *explorer) addFaults(s *state, add func(string, func(*state) error)) {
	for _, f := range faults {
		for i := range s.machines {
			if f.global && i > 0 || !f.due(s, i) {
				continue
			}
			add(s.machines[i].Name+": "+f.what, func(c *state) error {
				c.faults++
				f.happen(c, i)
				c.machines[i].version++
				return nil
			})
		}
	}
	if s.patches == nil {
		add("a second manager reads", func(c *state) error { c.faults++; e.read(c); return nil })
	}
}

// read lets the second manager plan. It writes later, and deletes and evicts nothing: it would read the pods before.
// Nor does it begin to drain a node: unlike the slots for drivers, those for MIG layouts end by time, and a manager
// stops long before, when it is not the leader any more.
func (e *explorer) read(s *state) {
	plan := e.plan(s.cluster())
	s.patches, s.versions = make([]*Step, len(s.machines)), make([]int, len(s.machines))
	for _, step := range plan.Steps {
		drains := step.Action == ActionLayout && s.machine(step.Node).relayouting()
		if step.Action != ActionPatch && !drains {
			continue
		}
		for i := range s.machines {
			if s.machines[i].Name == step.Node {
				s.patches[i], s.versions[i] = &step, s.machines[i].version
			}
		}
	}
	s.slots2, s.slotsOld = plan.Slots, s.slots
}

// planned returns the states after each write of the plan: as each is followed by a new plan, the manager may crash
// between any two. Nodes are upgraded in the order of their names, so slots are granted in both orders.
func (e *explorer) planned(s *state) ([]*state, error) {
	plan := e.plan(s.cluster())
	var all []*state
	if plan.Slots != nil {
		for _, order := range []*state{s, s.reversed()} {
			next, err := order.after("slots", func(c *state) error {
				return c.grant(e.plan(order.cluster()).Slots)
			})
			if err != nil {
				return nil, err
			}
			all = append(all, next)
		}
	}
	for i := range plan.Steps {
		step := &plan.Steps[i]
		next, err := s.after(fmt.Sprintf("%s: %s: %s", step.Node, step.Action, step.Why), func(c *state) error {
			e.observe(c, step)
			return c.apply(step)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return all, nil
}

func (e *explorer) observe(s *state, step *Step) {
	if step.Patch == nil {
		return
	}
	from, to := transition(&s.machine(step.Node).Node, step.Patch)
	e.transitionsLock.Lock()
	defer e.transitionsLock.Unlock()
	e.transitions[[2]State{from, to}] = true
}

// transition returns the states before and after a patch, as the drawing has them.
func transition(n *Node, patch *Patch) (from, to State) {
	from = n.currentState()
	if patch.Record != nil {
		to = patch.Record.State
	}
	return idleAsDone(from), idleAsDone(to)
}

func idleAsDone(s State) State {
	if s == StateNone {
		return StateDone
	}
	return s
}

// reversed is the state with the names of the nodes in the opposite order.
func (s *state) reversed() *state {
	c := s.clone()
	c.slots = Slots{}
	last := len(s.machines) - 1
	for i := range c.machines {
		m := &c.machines[i]
		m.Name = s.machines[last-i].Name
		if slot, granted := s.slots[s.machines[i].Name]; granted {
			c.slots[m.Name] = slot
		}
	}
	slices.Reverse(c.machines)
	c.patches, c.slots2 = nil, nil
	return c
}

// grant writes the slots of the plan. Each write takes some time.
func (s *state) grant(slots Slots) error {
	err := s.checkGrant(slots)
	s.slots, s.now = slots, s.now.Add(time.Nanosecond)
	return err
}

// checkGrant checks new slots against the policy, independently of the planner.
func (s *state) checkGrant(slots Slots) error { //nolint:gocyclo // It is a list of rules.
	holders, unavailable := map[string]bool{}, map[string]bool{}
	var broken, others []*machine
	for i := range s.machines {
		m := &s.machines[i]
		slot, granted := slots[m.Name]
		held := s.slots.Valid(&m.Node) || m.upgrading()
		switch {
		case !held && slot.Layout != "":
			s.addHolder(m, slot, holders, unavailable)
		case held && !granted:
			return fmt.Errorf("the slot of %s is taken away", m.Name)
		case held:
			holders[m.Name], unavailable[m.Name] = true, true
		case granted && m.isBroken():
			broken = append(broken, m)
		case granted:
			others = append(others, m)
		}
		if m.Installs && m.isUnavailable() {
			unavailable[m.Name] = true
		}
	}
	if err := s.checkNew(broken, others, holders, unavailable); err != nil {
		return err
	}
	return s.checkLayoutSlots(slots, holders)
}

// isUnavailable reports whether new pods cannot use the GPUs of the machine.
func (m *machine) isUnavailable() bool { return m.Unschedulable || !m.isReady() || m.MIG.Changing }

// checkNew checks new slots: first those of nodes with a broken driver, then the others.
func (s *state) checkNew(broken, others []*machine, holders, unavailable map[string]bool) error {
	for _, m := range append(broken, others...) {
		holders[m.Name], unavailable[m.Name] = true, true
		if err := s.checkSlot(m, len(holders), len(unavailable), slices.Contains(broken, m)); err != nil {
			return err
		}
	}
	return nil
}

// isReady reports whether the driver of the machine works; isBroken whether it is the driver that keeps the machine
// from working.
func (m *machine) isReady() bool { return m.KubeletReady && m.Driver != nil && m.Driver.Ready }

func (m *machine) isBroken() bool { return m.KubeletReady && m.Driver.waitsOrFailed() && !m.foreign }

func (p *Pod) waitsOrFailed() bool { return p != nil && !p.Ready }

// checkSlot checks the slot of one node, which makes so many nodes holders of a slot, and unavailable.
func (s *state) checkSlot(m *machine, holders, unavailable int, broken bool) error {
	policy := s.policy()
	asked := m.Record.Requested || policy.Auto
	switch {
	case policy.Paused, !asked, m.Skip:
		return fmt.Errorf("%s gets a slot, which the policy or a label forbids", m.Name)
	case holders > policy.MaxParallel:
		return fmt.Errorf("%s gets a slot beyond maxParallelUpgrades", m.Name)
	case unavailable > policy.MaxUnavailable.IntValue() && !broken:
		return fmt.Errorf("%s gets a slot beyond maxUnavailable", m.Name)
	}
	return nil
}
