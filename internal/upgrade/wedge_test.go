package upgrade

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

var flagPart = flag.String("upgrade.part", "1/1", "part of TestWedges, such as 3/10: the third of 10 parts")

// wedgeSettings are the worlds in which other clients write. Where only one node may be unavailable, a node that stays
// cordoned keeps the others from their upgrade, by its name; where all may be, nothing does.
var wedgeSettings = []setting{
	{name: "one at a time, with a pull", parallel: 1, unavailable: 3, pulls: true},
	{name: "one at a time, with jobs and drain", parallel: 1, unavailable: 3, jobs: true, drains: true},
	{name: "one unavailable", parallel: 1, unavailable: 1},
	{name: "MIG layouts, one at a time", parallel: 1, unavailable: 3, layouts: true},
	{name: "MIG layouts, one unavailable", parallel: 1, unavailable: 1, layouts: true, jobs: true, drains: true},
}

// deadline is the longest that one node may hold up others: the deadlines of all states, one after the other, for its
// driver and for its MIG layout. Each of the two writes may begin them again.
func (c *setting) deadline() time.Duration {
	if c.layouts {
		return 14 * limit
	}
	return 7 * limit
}

// wedge is one run of the search: writes to the node at a moment of an upgrade.
type wedge struct {
	root   *state
	writes []*foreignWrite
	node   int
	// blocked: a PodDisruptionBudget protects the pods of the node.
	blocked bool
}

// TestWedges: whatever another client writes to a node at any moment of an upgrade, and to the slots, no other node
// waits longer than the deadlines, and each that waits names the true cause. -short tries two settings, which chance
// selects.
func TestWedges(t *testing.T) {
	writes := foreignWrites()
	for _, setting := range chance.Part(t, "settings of wedges", wedgeSettings, 2, nameOfSetting) {
		t.Run(setting.name, func(t *testing.T) {
			roots, err := setting.roots(newExplorer(shipped, 0))
			if err != nil {
				t.Fatal(err)
			}
			wedges := sampleWedges(t, roots, writes)
			start := time.Now()
			if err := searchWedges(&setting, wedges); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d writes, %d moments: %d runs in %s", len(writes), len(roots), len(wedges),
				time.Since(start).Round(time.Millisecond))
		})
	}
}

// singles are all single writes at all moments.
func singles(roots []*state, writes []foreignWrite) []wedge {
	var all []wedge
	for _, root := range roots {
		for i := range writes {
			for node := range root.machines {
				for _, blocked := range []bool{false, true} {
					all = append(all, wedge{root, []*foreignWrite{&writes[i]}, node, blocked})
				}
			}
		}
	}
	return all
}

// sampleWedges are single writes and pairs: with TEST_FULL=1 all single writes, or else a sample of both.
func sampleWedges(t *testing.T, roots []*state, writes []foreignWrite) []wedge {
	t.Helper()
	random := chance.Of(t, "wedges")
	all, pairs := singles(roots, writes), 100_000
	t.Logf("%d single writes", len(all))
	if os.Getenv("TEST_FULL") == "" {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all, pairs = all[:1_000], 500
	}
	for range pairs {
		root := roots[random.IntN(len(roots))]
		all = append(all, wedge{
			root, []*foreignWrite{&writes[random.IntN(len(writes))], &writes[random.IntN(len(writes))]},
			random.IntN(len(root.machines)), random.IntN(2) == 0,
		})
	}
	return partOf(t, all)
}

// partOf is the part that -upgrade.part selects. All parts are of one whole if they have the same SEED.
func partOf(t *testing.T, all []wedge) []wedge {
	t.Helper()
	var part, parts int
	if _, err := fmt.Sscanf(*flagPart, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		t.Fatalf("-upgrade.part=%s is no part such as 3/10: %v", *flagPart, err)
	}
	return all[(part-1)*len(all)/parts : part*len(all)/parts]
}

// searchWedges runs all of them, on all cores.
func searchWedges(setting *setting, wedges []wedge) error {
	errs := make([]error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < len(wedges); i += workers {
				if errs[worker] = wedges[i].run(setting); errs[worker] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// run makes the writes, the second one some steps after the first, and lets the time pass.
func (w *wedge) run(setting *setting) error {
	s, err := w.written()
	if err != nil {
		return w.fail(s, err)
	}
	until := s.now.Add(time.Duration(len(w.writes)) * setting.deadline())
	for range 5000 {
		moved, err := s.round()
		switch {
		case err != nil:
			return w.fail(s, err)
		case s.othersDone(w.node):
			return nil
		case moved:
			continue
		}
		plan := shipped(s.cluster())
		if err := s.trueCauses(&plan); err != nil {
			return w.fail(s, err)
		}
		if plan.Until.IsZero() || plan.Until.After(until) {
			if setting.unavailable == 1 && s.waitForUnavailable(w.node) {
				return nil
			}
			return w.fail(s, fmt.Errorf("others wait until %s: %+v", plan.Until, plan.Report.Nodes))
		}
		s.now = plan.Until
	}
	return w.fail(s, errors.New("the nodes do not come to rest"))
}

// written is the state after the writes.
func (w *wedge) written() (*state, error) {
	s := w.root.clone()
	s.path = nil
	if m := &s.machines[w.node]; w.blocked && len(m.pods) > 0 {
		m.pods = slices.Clone(m.pods)
		m.pods[0].Blocked = "PDB team-a/web allows 0 disruptions"
	}
	for i, write := range w.writes {
		for range 3 * i {
			if _, err := s.round(); err != nil {
				return s, err
			}
		}
		write.apply(s, w.node)
	}
	return s, nil
}

func (w *wedge) fail(s *state, err error) error {
	var what []string
	for _, write := range w.writes {
		what = append(what, write.what)
	}
	return fmt.Errorf("%w\nafter %q to node %s (blocked %t) in\n%s\nthe nodes are\n%s", err, what,
		w.root.machines[w.node].Name, w.blocked, w.root, s)
}

// round is a pass of the operator, which carries out the steps of all nodes, and then one thing happens on each node.
func (s *state) round() (moved bool, err error) {
	plan := shipped(s.cluster())
	if plan.Slots != nil {
		s.slots, s.now = plan.Slots, s.now.Add(time.Nanosecond)
		return true, nil
	}
	for _, step := range effective(plan.Steps) {
		moved = true
		if err := s.apply(step); err != nil {
			return moved, fmt.Errorf("%s: %w", step.Why, err)
		}
	}
	happened := map[int]bool{}
	for _, h := range s.world.next() {
		if !happened[h.node] {
			moved, happened[h.node] = true, true
			s.happen(h)
		}
	}
	for i := range s.machines {
		if m := &s.machines[i]; m.validated() {
			m.replaced = false
		}
	}
	return moved, nil
}

// othersDone reports whether all nodes but the one that was written to are done.
func (s *state) othersDone(written int) bool {
	others := *s.world
	others.machines = slices.Delete(slices.Clone(s.machines), written, written+1)
	return others.done()
}

// trueCauses checks what the nodes report that wait for their turn, independently of the planner: each node that they
// name is in the state that they name.
func (s *state) trueCauses(plan *Plan) error {
	for name, progress := range plan.Report.Nodes {
		switch progress.Reason {
		case v1.ReasonUpgradeQueued, v1.ReasonUpgradeBudget:
		case v1.ReasonUpgradeUnknownState:
			if m := s.machine(name); !strings.Contains(progress.Message, string(m.State)) || m.State == StateNone {
				return fmt.Errorf("%s reports a state that it does not have: %+v", name, progress)
			}
			continue
		case "":
			return fmt.Errorf("%s waits without a reason: %+v", name, progress)
		default:
			continue
		}
		_, named, others := strings.Cut(progress.Message, ": ")
		if !others {
			named = name + " changes its MIG layout"
		}
		for cause := range strings.SplitSeq(named, ", ") {
			if err := s.isTrue(cause); err != nil {
				return fmt.Errorf("%s reports %q: %w", name, progress.Message, err)
			}
		}
	}
	return nil
}

// isTrue checks a cause, such as "a is cordoned".
func (s *state) isTrue(cause string) error {
	name, what, _ := strings.Cut(cause, " ")
	m := s.machine(name)
	record, slot := m.Record, s.slots[name]
	own := record != nil && record.UID == m.UID
	began := own && strings.HasSuffix(string(record.State), "-required") && record.State != StateRequired
	states := map[string]bool{
		"is being upgraded":      began,
		"begins its upgrade":     own && record.State == StateRequired && slot.UID == m.UID && slot.Layout == "",
		"changes its MIG layout": m.MIG.Drain != nil || slot.Layout != "",
		"is cordoned":            m.Unschedulable,
		"does not report":        !m.KubeletReady,
		"has no GPUs ready":      m.Driver == nil || !m.Driver.Ready,
	}
	if isSo, known := states[what]; !known || !isSo {
		return fmt.Errorf("that is not true of %s: %s", name, what)
	}
	return nil
}

// waitForUnavailable reports whether the node that was written to keeps the others by what is no state of the engine: a
// cordon that no record claims is a user's, a node whose new driver has failed stays cordoned, and a driver that is not
// there does not work. The others name it, see trueCauses.
func (s *state) waitForUnavailable(written int) bool {
	m := &s.machines[written]
	claimed := m.Record != nil && m.Record.UID == m.UID && m.Record.Cordoned || m.MIG.Drain.Cordons(m.UID)
	failed := m.Record != nil && m.Record.Restarted
	return m.Unschedulable && (!claimed || failed) || m.Driver == nil
}
