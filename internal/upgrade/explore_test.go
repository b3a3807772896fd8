package upgrade

import (
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// setting is a world whose driver is edited, and how it is explored.
type setting struct {
	name string
	// parallel and unavailable are the budget; pulls, jobs and drains switch these steps on.
	parallel             int
	unavailable          int32
	pulls, jobs, drains  bool
	depth, faults        int
	fullDepth, fullFault int
}

var settings = []setting{
	{name: "one at a time, with a pull", parallel: 1, unavailable: 1, pulls: true, depth: 8, faults: 1, fullDepth: 12, fullFault: 2},
	{name: "two at a time, with jobs and drain", parallel: 2, unavailable: 2, jobs: true, drains: true, depth: 8, faults: 1, fullDepth: 12, fullFault: 2},
	{name: "one at a time, two faults", parallel: 1, unavailable: 1, depth: 4, faults: 2, fullDepth: 8, fullFault: 3},
}

// root is the state in which the driver of all nodes has just been edited.
func (c *setting) root() *state {
	w := &world{now: epoch, slots: Slots{}}
	for _, name := range []string{"a", "b", "c"} {
		m := w.newMachine(name, "a")
		m.Target = "b"
		p := pod{user: true, job: c.jobs}
		p.Name, p.UID = "early", "early"
		m.pods = []pod{p}
		w.machines = append(w.machines, m)
	}
	w.policies = map[string]Policy{modelGroup: {
		Auto: true, MaxParallel: c.parallel, MaxUnavailable: intstr.FromInt32(c.unavailable), PullImages: c.pulls,
		WaitsForJobs: c.jobs, Drains: c.drains, JobsTimeout: limit, PodDeletionTimeout: limit, DrainTimeout: limit,
		PullTimeout: limit, DriverTimeout: limit, ValidationTimeout: limit, RetryAfter: limit,
	}}
	return &state{world: w, peak: c.parallel}
}

// roots are all states of an upgrade without faults: what is explored starts from each of them.
func (c *setting) roots(e *explorer) ([]*state, error) {
	s := c.root()
	all := []*state{s}
	for !s.done() {
		next := s.clone()
		moved, err := e.move(next)
		if err != nil {
			return nil, err
		}
		if !moved {
			next.now = next.now.Add(limit)
		}
		all, s = append(all, next), next
	}
	return all, nil
}

func (c *setting) explore(plan planner, depth, faults int) (*explorer, error) {
	e := newExplorer(plan, faults)
	roots, err := c.roots(e)
	if err != nil {
		return e, err
	}
	return e, e.run(roots, depth)
}

func TestModel(t *testing.T) {
	for _, setting := range settings {
		t.Run(setting.name, func(t *testing.T) {
			depth, faults := setting.depth, setting.faults
			if os.Getenv("TEST_FULL") != "" {
				depth, faults = setting.fullDepth, setting.fullFault
			}
			start := time.Now()
			e, err := setting.explore(shipped, depth, faults)
			t.Logf("%d distinct states (%d with their faults), depth %d from every state of an upgrade, at most %d faults, %s",
				len(e.distinct), len(e.expanded), depth, faults, time.Since(start).Round(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
