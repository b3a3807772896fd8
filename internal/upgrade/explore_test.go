package upgrade

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setting is a world whose driver is edited, and how it is explored.
type setting struct {
	name string
	// parallel and unavailable are the budget; pulls, jobs and drains switch these steps on.
	parallel            int
	unavailable         int32
	pulls, jobs, drains bool
	// layouts: the driver is up to date, and another MIG layout is wanted, for which nodes are drained.
	layouts bool
	// broken: the new driver has failed on the first node, and then the target is edited.
	broken bool
	// depth is how many events are explored from each state of an upgrade, and faults how many of them may be faults; the
	// others are for TEST_FULL=1. -short explores two events less.
	depth, faults         int
	fullDepth, fullFaults int
}

var settings = []setting{
	{
		name: "one at a time, with a pull", parallel: 1, unavailable: 1, pulls: true,
		depth: 8, faults: 1, fullDepth: 12, fullFaults: 2,
	},
	{
		name: "after a failed driver", parallel: 1, unavailable: 1, broken: true,
		depth: 4, faults: 2, fullDepth: 10, fullFaults: 2,
	},
	{
		name: "two at a time, with jobs and drain", parallel: 2, unavailable: 2, jobs: true, drains: true,
		depth: 8, faults: 1, fullDepth: 12, fullFaults: 2,
	},
	{
		name: "one at a time, two faults", parallel: 1, unavailable: 1,
		depth: 3, faults: 2, fullDepth: 5, fullFaults: 3,
	},
	{
		name: "MIG layouts, one at a time", parallel: 1, unavailable: 1, layouts: true,
		depth: 3, faults: 2, fullDepth: 7, fullFaults: 2,
	},
	{
		name: "MIG layouts, two at a time, with jobs and drain", parallel: 2, unavailable: 2, layouts: true, jobs: true,
		drains: true, depth: 6, faults: 1, fullDepth: 9, fullFaults: 2,
	},
}

// relayout makes the state one in which the driver is up to date, and another MIG layout is wanted.
func (s *state) relayout() {
	s.layout, s.evicts = "y", true
	for i := range s.machines {
		m := &s.machines[i]
		m.Driver.Digest = m.Target
		m.MIG = MIG{Partitioned: true, Requested: "x", Ended: true}
		m.mig = partitioner{written: "x", seen: "x"}
	}
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
		PullTimeout: limit, DriverTimeout: limit, ValidationTimeout: limit, RetryAfter: limit, MaxRetryAfter: limit,
	}}
	s := &state{world: w, peak: c.parallel}
	if c.layouts {
		s.relayout()
	}
	return s
}

// roots are all states of an upgrade without faults: what is explored starts from each of them.
func (c *setting) roots(e *explorer) ([]*state, error) {
	s := c.root()
	if c.broken {
		s.driversFail = true
		for range 100 {
			if moved, err := e.move(s); err != nil || !moved && s.machines[0].State == StateFailed {
				break
			} else if !moved {
				s.now = s.now.Add(limit)
			}
		}
		s.driversFail = false
		retarget("", "b", "c").happen(s, 0)
	}
	all := []*state{s}
	for !s.done() {
		if len(all) == 300 {
			return nil, fmt.Errorf("without any fault the nodes are not done\n%s", s)
		}
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
	// Collecting garbage is a quarter of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	e := newExplorer(plan, faults)
	roots, err := c.roots(e)
	if err != nil {
		return e, err
	}
	return e, e.run(roots, depth)
}

// TestModel also compares the transitions that it observes, and those of the stories, with the table that the page is
// drawn from.
func TestModel(t *testing.T) {
	observed, explored := toldTransitions(t), 0
	for _, setting := range settings {
		t.Run(setting.name, func(t *testing.T) {
			depth, faults := setting.depth, setting.faults
			switch {
			case os.Getenv("TEST_FULL") != "":
				depth, faults = setting.fullDepth, setting.fullFaults
			case testing.Short():
				depth -= 2
			}
			start := time.Now()
			e, err := setting.explore(shipped, depth, faults)
			t.Logf("%d distinct states (%d with their faults), depth %d from every state of an upgrade, at most %d faults, %s",
				len(e.distinct), len(e.expanded), depth, faults, time.Since(start).Round(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(observed, e.transitions)
			explored++
		})
	}
	var table, seen [][2]State
	for _, transition := range Transitions() {
		table = append(table, [2]State{transition.From, transition.To})
	}
	for transition := range observed {
		if transition[0] != transition[1] {
			seen = append(seen, transition)
		}
	}
	g := NewWithT(t)
	g.Expect(table).To(ContainElements(seen))
	if explored == len(settings) { // go test -run may have selected some
		g.Expect(seen).To(HaveLen(len(table)))
	}
}
