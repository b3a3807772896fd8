package healthaction

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// setting is where the exploration starts, and how far it goes.
type setting struct {
	name string
	root func() *world
	// depth is how many events follow, and events how many of them are of the surroundings; the others are for
	// TEST_FULL=1. -short explores two events less.
	depth, events         int
	fullDepth, fullEvents int
}

// broken returns a world whose first nodes have had faults for long, at different times.
func broken(nodes, faulty, limit int) *world {
	w := newWorld(nodes, limit)
	for i := range faulty {
		w.machines[i].fails(w, "Reset")
		w.now = w.now.Add(3 * DefaultDwell)
	}
	return w
}

// acted returns a world with a node that has been acted on because of a fault of this class.
func acted(class gpuhealth.Class, nodes int) *world {
	w := newWorld(nodes, 1)
	w.machines[0].fails(w, class)
	w.now = w.now.Add(3 * DefaultDwell)
	e := &explorer{plan: shipped}
	if err := e.settle(w); err != nil || !w.machines[0].acted() {
		panic(fmt.Sprint("the node is not acted on: ", err))
	}
	return w
}

var settings = []setting{
	{"one of two is tainted", func() *world { return acted(gpuhealth.Reset, 2) }, 6, 3, 8, 4},
	{"one of two is cordoned", func() *world { return acted(gpuhealth.Reboot, 2) }, 6, 3, 8, 4},
	{"three of four have failed at a time", func() *world {
		w := newWorld(4, 2)
		for i := range 3 {
			w.machines[i].fails(w, gpuhealth.Reset)
		}
		w.now = w.now.Add(DefaultDwell)
		return w
	}, 6, 2, 7, 3},
	{"one of three is faulty", func() *world { return broken(3, 1, 1) }, 8, 2, 9, 3},
	{"two of three are faulty", func() *world { return broken(3, 2, 1) }, 9, 2, 9, 3},
	{"two of three are faulty, the better one is approved", func() *world {
		w := broken(3, 2, 1)
		w.machines[0].Consent = labels.HealthApprove + w.machines[0].id()
		w.machines[1].fails(w, gpuhealth.Reboot)
		w.now = w.now.Add(DefaultDwell)
		return w
	}, 9, 1, 10, 2},
	{"two of three are faulty, two places", func() *world { return broken(3, 2, 2) }, 7, 2, 8, 3},
	{"three of four are faulty, one place", func() *world { return broken(4, 3, 1) }, 8, 2, 8, 3},
	{"two of two are healthy", func() *world { return newWorld(2, 1) }, 9, 4, 10, 5},
}

// explorer explores the states of the model.
type explorer struct {
	plan      planner
	maxEvents int
	seed      maphash.Seed
	// expanded are the states that were met, with the number of their events, and distinct those without it.
	expanded, distinct map[uint64]bool
	// settled are the states from which everything ends well.
	lock    sync.Mutex
	settled map[uint64]bool
}

func (c *setting) explore(plan planner, depth, events int) (*explorer, error) {
	// Collecting garbage is a quarter of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	e := &explorer{
		plan: plan, maxEvents: events, seed: maphash.MakeSeed(),
		expanded: map[uint64]bool{}, distinct: map[uint64]bool{}, settled: map[uint64]bool{},
	}
	frontier := e.unmet([]*world{c.root()})
	for level := 0; len(frontier) > 0; level++ {
		next, err := e.level(frontier, level < depth)
		if err != nil {
			return e, err
		}
		frontier = e.unmet(next)
	}
	return e, nil
}

// workers is how many parts of the states are searched at a time. Each reports its first fault: were the number that of
// the cores, the faults would be others on another machine.
const workers = 16

// level checks the states of the frontier, on all cores, and returns their successors.
func (e *explorer) level(frontier []*world, expand bool) ([]*world, error) {
	found, errs := make([][]*world, workers), make([]error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < len(frontier); i += workers {
				w := frontier[i]
				if err := e.endsWell(w); err != nil {
					errs[worker] = fmt.Errorf("%w\nin\n%s\nafter\n%s", err, w, w.path)
					return
				}
				if !expand {
					continue
				}
				successors, err := e.successors(w)
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
func (e *explorer) unmet(states []*world) []*world {
	var fresh []*world
	for _, w := range states {
		key := w.key()
		hash := maphash.String(e.seed, fmt.Sprint(w.events, key))
		if e.expanded[hash] {
			continue
		}
		e.expanded[hash], e.distinct[maphash.String(e.seed, key)] = true, true
		fresh = append(fresh, w)
	}
	return fresh
}

// successors returns the states after each event that can happen now: a manager reads the nodes, or carries out one
// step of what it has planned from an earlier reading, as with a cache that is behind. By reading again it forgets the
// other steps, as after a crash.
func (e *explorer) successors(w *world) ([]*world, error) {
	var all []*world
	var failure error
	add := func(what string, change func(*world) error) {
		c := w.clone()
		c.path = &pathTo{w.path, what}
		if err := change(c); err != nil && failure == nil {
			failure = fmt.Errorf("%w\nafter\n%s\n%s", err, c.path, c)
		}
		all = append(all, c)
	}
	for k := range w.managers {
		add(fmt.Sprintf("manager %d reads", k), func(c *world) error {
			c.managers[k] = w.read(e.plan)
			return nil
		})
		for i := range w.machines {
			if w.managers[k] == nil {
				continue
			}
			if step, due := w.managers[k].due(w, i); due {
				add(fmt.Sprintf("manager %d: %s: %s", k, step.describe(), step.Why), func(c *world) error {
					return c.apply(i, step, w.managers[k].from)
				})
			}
		}
	}
	if w.events < e.maxEvents {
		addEvents(w, add)
	}
	return all, failure
}

func addEvents(w *world, add func(string, func(*world) error)) {
	for _, event := range surroundings {
		for i := range w.machines {
			if event.global && i > 0 || !event.due(w, &w.machines[i]) {
				continue
			}
			add(w.machines[i].Name+": "+event.what, func(c *world) error {
				c.events++
				event.happen(c, &c.machines[i])
				if !event.elsewhere {
					c.machines[i].version++
				}
				return nil
			})
		}
	}
}

// endsWell checks that without further events the nodes come to rest, each acted on or with a reason, and that nothing
// is left once all faults have ended.
func (e *explorer) endsWell(w *world) error {
	c := w.clone()
	c.path, c.managers = nil, [2]*reading{}
	hash := maphash.String(e.seed, c.key())
	e.lock.Lock()
	known := e.settled[hash]
	e.lock.Unlock()
	if known {
		return nil
	}
	if err := e.settle(c); err != nil {
		return fmt.Errorf("then without further events: %w\n%s", err, c)
	}
	if err := errors.Join(e.atRest(c), e.wakesUp(c)); err != nil {
		return fmt.Errorf("then without further events: %w\n%s", err, c)
	}
	c.cure()
	if err := e.settle(c); err != nil {
		return fmt.Errorf("then without faults: %w\n%s", err, c)
	}
	for i := range c.machines {
		if m := &c.machines[i]; m.acted() || m.HasRecord || m.Consent != "" {
			return fmt.Errorf("then without faults: something is left on %s\n%s", m.Name, c)
		}
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	e.settled[hash] = true
	return nil
}

// settle lets one manager work until it has nothing to do.
func (e *explorer) settle(w *world) error {
	for range 50 {
		r := w.read(e.plan)
		i := slices.IndexFunc(r.steps, func(s readStep) bool { return s.planned })
		if i < 0 {
			return nil
		}
		if err := w.apply(i, &r.steps[i].Step, r.from); err != nil {
			return err
		}
	}
	return errors.New("the nodes do not come to rest")
}

// atRest checks that each node with a fault is acted on, or has a reason that is true.
func (e *explorer) atRest(w *world) error {
	plan := e.plan(w.cluster())
	for i := range w.machines {
		m := &w.machines[i]
		if w.wants(m) {
			if err := w.checkVerdict(m, plan); err != nil {
				return fmt.Errorf("%s %w", m.Name, err)
			}
			continue
		}
		if m.acted() && (m.Reported || !w.mayStay(m)) && !m.mustStayCordoned() {
			return fmt.Errorf("%s is acted on without a fault", m.Name)
		}
	}
	return nil
}

// wakesUp checks Until of the plan of a world in which nothing happens but by time: just before that time the plan is
// still the same, and from then on it is another one, or has a later time. Without one it never changes.
func (e *explorer) wakesUp(w *world) error {
	at := func(now time.Time) Plan {
		c := w.cluster()
		c.Now = now
		return e.plan(c)
	}
	plan, never := at(w.now), w.now.Add(100*DefaultDwell)
	until := cmp.Or(plan.Until, never)
	if before := at(until.Add(-1)); len(before.Steps) > 0 || !maps.Equal(before.Nodes, plan.Nodes) {
		return fmt.Errorf("the plan changes before %s, and nothing wakes the operator: %+v, was %+v", plan.Until,
			before.Nodes, plan.Nodes)
	}
	if plan.Until.IsZero() {
		return nil
	}
	if then := at(until); len(then.Steps) == 0 && !then.Until.IsZero() && !then.Until.After(until) {
		return fmt.Errorf("the operator wakes at %s, and has nothing to do: %+v", until, then.Nodes)
	}
	return nil
}

// mayStay reports whether what was done stays on a machine whose agent has not reported: no user forbids it, and there
// is an action for its fault.
func (w *world) mayStay(m *machine) bool {
	if w.policy == nil || m.forbids() || m.Record == nil {
		return false
	}
	class := gpuhealth.Reset
	if strings.HasPrefix(m.Record.Fault, "reboot-") {
		class = gpuhealth.Reboot
	}
	return w.policy.Actions[class] != v1.HealthActionNone
}

// wants reports whether there is an action for the fault of the machine.
func (w *world) wants(m *machine) bool {
	return w.policy != nil && m.Watched && m.Reported && w.strongest(m) != v1.HealthActionNone
}

// mustStayCordoned reports whether someone else relies on the cordon.
func (m *machine) mustStayCordoned() bool { return m.Upgrading || m.ReliesOnCordon != "" }

// isUndone reports whether a person has undone the actions for all faults of the machine.
func (m *machine) isUndone() bool {
	return !slices.ContainsFunc(m.ids(), func(id string) bool { return !slices.Contains(m.undone, id) })
}

// checkVerdict checks that the machine is acted on, or has a reason that is true.
func (w *world) checkVerdict(m *machine, plan Plan) error {
	verdict := plan.Nodes[m.Name]
	switch {
	case verdict.Text == "" || (verdict.Done != "") != m.acted():
		return fmt.Errorf("rests without a reason: %+v", verdict)
	case verdict.Done == "" && verdict.Hold == "":
		return fmt.Errorf("is not acted on without a reason: %+v", verdict)
	case verdict.Hold == HoldMaxNodes && w.acted() < w.policy.MaxNodes.IntValue():
		return errors.New("waits for a place, though one is free")
	case verdict.Hold == HoldDwell && plan.Until.IsZero():
		return errors.New("waits for a time, and nothing ends it")
	}
	return w.checkUndone(m, verdict)
}

// checkUndone checks that what a person has undone holds for the faults of that time, and for no others.
func (w *world) checkUndone(m *machine, verdict Verdict) error {
	switch {
	case m.acted() && m.isUndone() && !m.mustStayCordoned():
		return errors.New("is acted on though a person has undone it")
	case verdict.Hold == HoldUndone && m.failsLater && w.policy.Actions[gpuhealth.Reset] != v1.HealthActionNone:
		return errors.New("has a fault that an earlier one hides, for which a person has undone it")
	}
	return nil
}

// cure ends everything that is wrong with the nodes.
func (w *world) cure() {
	for i := range w.machines {
		m := &w.machines[i]
		if m.Upgrading {
			m.endUpgrade()
		}
		m.Reported, m.Report.Faults, m.OtherActor, m.ReliesOnCordon = true, nil, "", ""
		if m.forbids() || w.policy == nil || !m.Watched {
			m.Consent = "" // by the user
		}
		m.version++
	}
}

func TestModel(t *testing.T) {
	for _, setting := range settings {
		t.Run(setting.name, func(t *testing.T) {
			depth, events := setting.depth, setting.events
			switch {
			case os.Getenv("TEST_FULL") != "":
				depth, events = setting.fullDepth, setting.fullEvents
			case testing.Short():
				depth -= 2
			}
			start := time.Now()
			e, err := setting.explore(shipped, depth, events)
			t.Logf("%d distinct states (%d with their events), depth %d, at most %d events, %s",
				len(e.distinct), len(e.expanded), depth, events, time.Since(start).Round(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
