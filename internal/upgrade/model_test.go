package upgrade

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// limit is every deadline of the model's policy: time passes in such units, and what is older has the same age.
const limit = time.Hour

const modelGroup = ""

// planner is what the model checks: the shipped one, or one with a bug.
type planner func(*Cluster) Plan

func shipped(c *Cluster) Plan { return c.Plan() }

// state is a state of the model: the world, and the plan that a second manager still holds.
type state struct {
	*world
	// faults that have happened on the path, and how it came here.
	faults int
	path   *event
	// peak is the largest maxParallelUpgrades so far.
	peak int
	// What the second manager is about to write: patches of Nodes, by index, and slots. A write is dropped when its
	// object has another resourceVersion.
	patches  []*Step
	versions []int
	slots2   Slots
	slotsOld Slots
}

type event struct {
	before *event
	what   string
}

func (e *event) String() string {
	var lines []string
	for ; e != nil; e = e.before {
		lines = append(lines, "  "+e.what)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

func (s *state) clone() *state {
	c := *s
	c.world = s.world.clone()
	return &c
}

func (w *world) policy() Policy { return w.policies[modelGroup] }

func (w *world) setPolicy(change func(*Policy)) {
	policy := w.policy()
	change(&policy)
	w.policies = map[string]Policy{modelGroup: policy}
}

// key identifies the state but for the names of nodes and pods, and ages beyond the deadlines.
func (s *state) key() string {
	machines := make([]string, len(s.machines))
	for i := range s.machines {
		machines[i] = s.machineKey(i)
	}
	slices.Sort(machines)
	p := s.policy()
	return fmt.Sprint(machines, p.Auto, p.Paused, p.MaxParallel, p.MaxUnavailable.IntVal, s.lost, s.peak, s.pullsFail,
		s.secondSlots())
}

// secondSlots is the slots that the second manager may still write, without names.
func (s *state) secondSlots() string {
	if s.slots2 == nil || !maps.Equal(s.slots, s.slotsOld) {
		return ""
	}
	return "second"
}

func (s *state) machineKey(i int) string {
	m := &s.machines[i]
	b := make([]byte, 0, 160)
	flag := func(values ...bool) {
		for _, v := range values {
			if v {
				b = append(b, '1')
			} else {
				b = append(b, '0')
			}
		}
		b = append(b, ' ')
	}
	word := func(text string) { b = append(append(b, text...), ' ') }
	word(string(m.State))
	word(m.Target)
	flag(m.Requested, m.Skip, m.Unschedulable, m.KubeletReady, m.InitiallyCordoned, m.foreign, m.replaced)
	if r := m.Record; r != nil {
		word(string(r.State))
		word(r.Target)
		word(r.Reason)
		flag(r.Requested, r.Cordoned, r.Restarted, r.Moves, r.BootID == m.BootID, s.now.Sub(r.Since) >= limit,
			m.Driver != nil && m.Driver.UID == r.DriverPod, r.DriverPod == "", r.RetryAt.IsZero(), s.now.Before(r.RetryAt),
			m.started == r.Round)
		slot, granted := s.slots[m.Name]
		flag(granted, granted && slot.Round == r.Round, granted && slot.Round < r.Round)
		if second, found := s.slots2[m.Name]; found && s.secondSlots() != "" {
			flag(true, second.Round == r.Round, second.Round < r.Round)
		}
	}
	for _, p := range []*Pod{m.Driver, m.Validator, m.Pull} {
		if p == nil {
			b = append(b, '-')
			continue
		}
		word(p.Digest)
		flag(p.Ready, p.Failed, p.Ending, p.Unloading)
	}
	if m.Driver != nil && m.Validator != nil {
		flag(m.Validator.Created.After(m.Driver.Created))
	}
	if m.Pull != nil {
		flag(s.now.Sub(m.Pull.Created) >= limit)
	}
	for _, p := range m.pods {
		flag(p.user, p.job, p.Ending, p.Blocked != "")
	}
	if step := s.patchOf(i); step != nil {
		word("second")
		word(string(step.Patch.State))
		if r := step.Patch.Record; r != nil {
			flag(r.Requested, r.Cordoned, r.Restarted, r.Reason == "", m.Record != nil && r.Round == m.Record.Round)
		}
		flag(step.Patch.Unschedulable != nil, step.Patch.EndRequest)
	}
	return string(b)
}

// patchOf is the patch of the node that the second manager may still write.
func (s *state) patchOf(i int) *Step {
	if s.patches == nil || s.patches[i] == nil || s.versions[i] != s.machines[i].version {
		return nil
	}
	return s.patches[i]
}

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

// level checks the states of the frontier, on all cores, and returns their successors.
func (e *explorer) level(frontier []*state, expand bool) ([]*state, error) {
	workers := runtime.GOMAXPROCS(0)
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
		if s.machines[i].upgrading() {
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
	if s.faults >= e.maxFaults {
		return all, err
	}
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
	if s.patches == nil && err == nil {
		add("a second manager reads", func(c *state) error { c.faults++; e.read(c); return nil })
	}
	return all, err
}

// read lets the second manager plan. It writes later, and deletes and evicts nothing: it would read the pods before.
func (e *explorer) read(s *state) {
	plan := e.plan(s.cluster())
	s.patches, s.versions = make([]*Step, len(s.machines)), make([]int, len(s.machines))
	for _, step := range plan.Steps {
		if step.Action != ActionPatch {
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
				granted := e.plan(order.cluster()).Slots
				err := c.checkGrant(granted)
				c.slots = granted
				return err
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

// checkGrant checks new slots against the policy, independently of the planner.
func (s *state) checkGrant(slots Slots) error {
	policy := s.policy()
	holders, unavailable := map[string]bool{}, map[string]bool{}
	for i := range s.machines {
		m := &s.machines[i]
		if s.slots.Valid(&m.Node) || m.upgrading() {
			holders[m.Name], unavailable[m.Name] = true, true
			if _, kept := slots[m.Name]; !kept {
				return fmt.Errorf("the slot of %s is taken away", m.Name)
			}
		}
		if m.Unschedulable || !m.KubeletReady || m.Driver == nil || !m.Driver.Ready {
			unavailable[m.Name] = true
		}
	}
	var broken, others []*machine
	for i := range s.machines {
		m := &s.machines[i]
		if _, granted := slots[m.Name]; !granted || holders[m.Name] {
			continue
		}
		if m.Driver != nil && !m.Driver.Ready && m.KubeletReady && !m.foreign {
			broken = append(broken, m)
		} else {
			others = append(others, m)
		}
	}
	for _, m := range append(broken, others...) {
		holders[m.Name], unavailable[m.Name] = true, true
		asked := m.Record.Requested || policy.Auto
		switch {
		case policy.Paused, !asked, m.Skip:
			return fmt.Errorf("%s gets a slot, which the policy or a label forbids", m.Name)
		case len(holders) > policy.MaxParallel:
			return fmt.Errorf("%s gets a slot beyond maxParallelUpgrades", m.Name)
		case len(unavailable) > policy.MaxUnavailable.IntValue() && !slices.Contains(broken, m):
			return fmt.Errorf("%s gets a slot beyond maxUnavailable", m.Name)
		}
	}
	return nil
}

// endsWell checks that without further faults the nodes come to rest, each done or with a reason that is named, and that
// all are done once the causes are removed.
func (e *explorer) endsWell(s *state) error {
	var met []uint64
	c := s.clone()
	c.path, c.patches, c.slots2 = nil, nil, nil
	for range 100 {
		hash := e.hash(c.key())
		e.settledLock.Lock()
		known := e.settled[hash]
		e.settledLock.Unlock()
		if known {
			break
		}
		met = append(met, hash)
		moved, err := e.move(c)
		if err != nil {
			return fmt.Errorf("then without further faults: %w\n%s", err, c)
		}
		if moved {
			continue
		}
		if err := e.atRest(c); err != nil {
			return fmt.Errorf("then without further faults: %w\n%s", err, c)
		}
		if err := e.cured(c.clone()); err != nil {
			return err
		}
		break
	}
	if len(met) == 100 {
		return fmt.Errorf("the nodes do not come to rest\n%s", c)
	}
	e.settledLock.Lock()
	defer e.settledLock.Unlock()
	for _, hash := range met {
		e.settled[hash] = true
	}
	return nil
}

// move carries out one write of the plan, or lets one thing happen.
func (e *explorer) move(s *state) (bool, error) {
	plan := e.plan(s.cluster())
	if plan.Slots != nil {
		err := s.checkGrant(plan.Slots)
		s.slots = plan.Slots
		return true, err
	}
	if steps := effective(s, plan.Steps); len(steps) > 0 {
		e.observe(s, steps[0])
		err := s.apply(steps[0])
		for i := range s.machines {
			if s.machines[i].validated() {
				s.machines[i].replaced = false
			}
		}
		return true, err
	}
	if happenings := s.world.next(); len(happenings) > 0 {
		s.happen(happenings[0])
		return true, nil
	}
	return false, nil
}

// effective leaves out evictions that the API server refuses, which are repeated.
func effective(s *state, steps []Step) []*Step {
	var all []*Step
	for i := range steps {
		step := &steps[i]
		admitted := slices.IndexFunc(step.Pods, func(p WorkloadPod) bool { return p.Blocked == "" })
		if step.Action == ActionEvict && admitted < 0 {
			continue
		}
		all = append(all, step)
	}
	return all
}

// atRest checks that each node which is not done has a reason, and either waits for somebody, or for a time.
func (e *explorer) atRest(s *state) error {
	plan := e.plan(s.cluster())
	for name, progress := range plan.Report.Nodes {
		queued := progress.Reason == v1.ReasonUpgradeQueued || progress.Reason == v1.ReasonUpgradeBudget
		named := progress.Held || progress.State == StateFailed || queued || !plan.Until.IsZero()
		if progress.Reason == "" || !named {
			return fmt.Errorf("%s rests without a named hold: %+v", name, progress)
		}
		if progress.State.InProgress() && plan.Until.IsZero() {
			return fmt.Errorf("%s has no deadline: %+v", name, progress)
		}
		if r := s.machine(name).Record; progress.State == StateFailed && !r.Restarted && plan.Until.IsZero() &&
			r.Reason != v1.ReasonUpgradeUncordoned {
			return fmt.Errorf("%s is never tried again: %+v", name, progress)
		}
	}
	return nil
}

// cured removes what keeps the nodes from going on, and checks that all of them become done.
func (e *explorer) cured(s *state) error {
	before := s.String()
	s.setPolicy(func(p *Policy) {
		p.Auto, p.Paused, p.MaxParallel, p.MaxUnavailable = true, false, max(1, p.MaxParallel), intstr.FromInt32(3)
	})
	for range 600 {
		moved, err := e.move(s)
		if err != nil {
			return fmt.Errorf("then with all causes removed: %w\n%s", err, s)
		}
		if moved {
			continue
		}
		if s.done() {
			return nil
		}
		s.pullsFail = false
		for i := range s.machines {
			s.machines[i].cure()
		}
		s.now = s.now.Add(limit)
		if s.now.Sub(epoch) > 50*limit {
			break
		}
	}
	return fmt.Errorf("with all causes removed the nodes are not done\n%s\nat rest\n%s", s, before)
}

func (m *machine) cure() {
	well := func(p *Pod) *Pod {
		if p == nil || !p.Failed {
			return p
		}
		c := *p
		c.Failed = false
		return &c
	}
	m.Driver, m.Validator, m.Pull = well(m.Driver), well(m.Validator), well(m.Pull)
	m.KubeletReady, m.Skip = true, false
	if m.foreign {
		m.Unschedulable, m.foreign = false, false
	}
	waits := m.Driver != nil && m.Driver.Unloading && m.users() > 0
	if m.Record != nil && m.Record.Reason != "" || waits {
		m.Requested = true
	}
	pods := slices.Clone(m.pods)
	for i := range pods {
		pods[i].Blocked = ""
	}
	m.pods = pods
}

func (w *world) done() bool {
	for i := range w.machines {
		m := &w.machines[i]
		record := m.ownRecord()
		idle := m.State.idle() && m.State != StateFailed && m.State != StateRequired && (record == nil || record.State == StateDone)
		if !idle || m.Unschedulable || m.Driver == nil || !m.Driver.Ready || m.Driver.Digest != m.Target {
			return false
		}
	}
	return true
}
