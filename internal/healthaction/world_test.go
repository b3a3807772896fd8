package healthaction

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

var epoch = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// planner is what the model checks: the shipped one, or one with a bug.
type planner func(*Cluster) Plan

func shipped(c *Cluster) Plan { return c.Plan() }

// The cordoners of a machine.
const (
	us     = "us"
	person = "person"
	engine = "upgrade"
)

// machine is a node as the API server has it, and what only the model knows.
type machine struct {
	Node
	// version changes with each write of the Node.
	version int
	// cordoner is who has cordoned it.
	cordoner string
	// undone are the faults for which a person has undone what was done. fails later: a fault has occurred after the
	// operator has recorded that.
	undone     []string
	failsLater bool
	boots      int
}

// acted reports whether the machine is out of service because of this operator.
func (m *machine) acted() bool { return m.Tainted || m.cordoner == us }

// reading is a plan that a manager still carries out, and what it was made from.
type reading struct {
	from     *world
	steps    map[int]Step
	versions []int
}

// world is a state of the model.
type world struct {
	now      time.Time
	policy   *Policy
	machines []machine
	// peak is the largest limit so far.
	peak     int
	managers [2]*reading
	// events of the surroundings that have happened, and how it came here.
	events int
	path   *pathTo
}

type pathTo struct {
	before *pathTo
	what   string
}

func (p *pathTo) String() string {
	var lines []string
	for ; p != nil; p = p.before {
		lines = append(lines, "  "+p.what)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

func newWorld(nodes, limit int) *world {
	w := &world{now: epoch, peak: limit, policy: &Policy{
		Actions: map[gpuhealth.Class]v1.HealthAction{
			gpuhealth.Reset: v1.HealthActionTaint, gpuhealth.Reboot: v1.HealthActionCordon,
		},
		MaxNodes: intstr.FromInt32(int32(limit)),
	}}
	for i := range nodes {
		name := string(rune('a' + i))
		w.machines = append(w.machines, machine{Node: Node{
			Name: name, UID: types.UID("uid-" + name), Managed: true, Watched: true, Reported: true,
			Report: gpuhealth.Report{Boot: "0"}, Usable: true, DriverReady: true,
		}})
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.machines = slices.Clone(w.machines)
	for k, r := range w.managers {
		if r != nil {
			copied := *r
			copied.steps = map[int]Step{}
			for i, step := range r.steps {
				copied.steps[i] = step
			}
			c.managers[k] = &copied
		}
	}
	return &c
}

func (w *world) cluster() *Cluster {
	c := &Cluster{Now: w.now, Policy: w.policy}
	for i := range w.machines {
		node := w.machines[i].Node
		if !node.Watched {
			// Nothing is read from a node without an agent.
			node.Reported, node.Report = false, gpuhealth.Report{}
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

func (w *world) String() string {
	var lines []string
	for i := range w.machines {
		lines = append(lines, "  "+w.machines[i].String())
	}
	policy := "none"
	if w.policy != nil {
		policy = fmt.Sprint(w.policy.Actions, " maxNodes ", w.policy.MaxNodes.IntValue())
	}
	return fmt.Sprintf("at %s, policy %s, peak %d\n%s", w.now.Sub(epoch), policy, w.peak, strings.Join(lines, "\n"))
}

// String has all of the machine that counts, but its version.
func (m *machine) String() string {
	record := "-"
	if m.HasRecord {
		record = fmt.Sprint(*m.Record)
	}
	faults := make([]string, len(m.Report.Faults))
	for i, f := range m.Report.Faults {
		faults[i] = fmt.Sprint(f.PCI, f.Class, f.Since.Sub(epoch))
	}
	return fmt.Sprint(m.Name, m.Report.Boot, faults, " record ", record, " consent ", m.Consent, " undone ", m.undone,
		m.failsLater,
		" by ", m.cordoner, m.Unschedulable, m.Tainted, m.Reported, m.Watched, m.Usable, m.Upgrading, m.OtherActor)
}

// key identifies the state.
func (w *world) key() string {
	b := &strings.Builder{}
	fmt.Fprint(b, w.String())
	for _, r := range w.managers {
		b.WriteString("|")
		if r == nil {
			continue
		}
		for i := range w.machines {
			if step, due := r.due(w, i); due {
				fmt.Fprint(b, i, step.describe())
			}
		}
	}
	return b.String()
}

// due is the step of the machine that the reading still leads to: the API server rejects it if the Node has changed.
func (r *reading) due(w *world, i int) (Step, bool) {
	step, planned := r.steps[i]
	return step, planned && r.versions[i] == w.machines[i].version
}

func (s *Step) describe() string {
	record := "-"
	if s.Record != nil {
		of := append([]string{string(s.Record.State), string(s.Record.Action), s.Record.Fault}, s.Record.Undone...)
		record = strings.Join(of, " ")
	}
	text := func(value *bool) string {
		if value == nil {
			return "-"
		}
		return fmt.Sprint(*value)
	}
	return fmt.Sprint(s.Node, ": record ", record, " taint ", text(s.Taint), " cordon ", text(s.Unschedulable),
		s.EndConsent)
}

// read lets a manager plan.
func (w *world) read(plan planner) *reading {
	r := &reading{from: w.clone(), steps: map[int]Step{}, versions: make([]int, len(w.machines))}
	r.from.managers, r.from.path = [2]*reading{}, nil
	planned := plan(w.cluster())
	for i := range w.machines {
		r.versions[i] = w.machines[i].version
		for _, step := range planned.Steps {
			if step.Node == w.machines[i].Name {
				r.steps[i] = step
			}
		}
	}
	return r
}

// apply carries out a step that was planned from a reading, and checks what must hold.
func (w *world) apply(i int, step *Step, from *world) error {
	if err := w.checkStep(i, step, &from.machines[i], from); err != nil {
		return fmt.Errorf("%s: %w", w.machines[i].Name, err)
	}
	m := &w.machines[i]
	m.version++
	m.Record, m.HasRecord = step.Record, step.Record != nil
	if step.Taint != nil {
		m.Tainted = *step.Taint
	}
	if step.Unschedulable != nil {
		m.Unschedulable = *step.Unschedulable
		m.cordoner = ""
		if m.Unschedulable {
			m.cordoner = us
		}
	}
	if step.EndConsent {
		m.Consent = ""
	}
	if count := w.acted(); count > w.peak {
		return fmt.Errorf("%d nodes are acted on, though maxNodes was %d at most", count, w.peak)
	}
	return nil
}

// acted counts the machines that are acted on.
func (w *world) acted() int {
	count := 0
	for i := range w.machines {
		if w.machines[i].acted() {
			count++
		}
	}
	return count
}

// checkStep checks a step against what its manager has read, independently of the planner.
func (w *world) checkStep(i int, step *Step, seen *machine, from *world) error {
	m := &w.machines[i]
	if step.EndConsent && (m.Consent == labels.HealthForbid || m.faulty()) {
		return errors.New("the consent of a user is removed")
	}
	taints, cordons := isTrue(step.Taint), isTrue(step.Unschedulable)
	switch {
	case cordons && m.Unschedulable:
		return errors.New("a node is cordoned that someone else has cordoned")
	case step.Unschedulable != nil && m.Unschedulable:
		return m.checkUncordon(from)
	case taints || cordons:
		return from.checkActs(i, seen, taints)
	}
	return nil
}

// checkActs checks that the machine may be tainted, or else cordoned.
func (w *world) checkActs(i int, seen *machine, taints bool) error {
	switch {
	case !w.wants(seen):
		return errors.New("a node without a fault, an agent or a policy is acted on")
	case taints != (w.strongest(seen) == v1.HealthActionTaint):
		return errors.New("the action is another one")
	}
	if err := seen.checkSet(w, w.strongest(seen)); err != nil || seen.acted() {
		return err
	}
	return w.checkBrakes(i, seen)
}

func isTrue(value *bool) bool { return value != nil && *value }

// checkUncordon checks that the machine may be uncordoned.
func (m *machine) checkUncordon(from *world) error {
	switch {
	case m.cordoner != us:
		return errors.New("the cordon of someone else is removed")
	case m.Upgrading || m.ReliesOnCordon != "" && from.policy != nil:
		return errors.New("the cordon is removed while someone relies on it")
	}
	return nil
}

// approved reports whether a user has approved a fault of the machine.
func (m *machine) approved() bool {
	return slices.ContainsFunc(m.ids(), func(id string) bool { return m.Consent == labels.HealthApprove+id })
}

// strongest is the strongest action for the faults of the machine for which no person has undone it; for all faults
// if there are none.
func (w *world) strongest(m *machine) v1.HealthAction {
	found := map[bool]v1.HealthAction{false: v1.HealthActionNone, true: v1.HealthActionNone}
	for i, id := range m.ids() {
		action, undone := w.policy.Actions[m.Report.Faults[i].Class], slices.Contains(m.undone, id)
		if action == v1.HealthActionCordon || action == v1.HealthActionTaint && found[undone] != v1.HealthActionCordon {
			found[undone] = action
		}
	}
	if found[false] != v1.HealthActionNone {
		return found[false]
	}
	return found[true]
}

// checkSet checks that nothing of the machine itself forbids to act on it.
func (m *machine) checkSet(w *world, action v1.HealthAction) error {
	undone, ripe := m.reasons(w, action)
	switch {
	case m.Consent == labels.HealthForbid:
		return errors.New("a user has forbidden it")
	case m.OtherActor != "" || m.Upgrading:
		return errors.New("someone else works on the node")
	case undone:
		return errors.New("a person has undone it")
	case !m.approved() && !ripe:
		return errors.New("the fault is too recent")
	}
	return nil
}

// reasons reports whether a person has undone the action for all faults that call for it, and whether any other one has
// lasted long enough.
func (m *machine) reasons(w *world, action v1.HealthAction) (undone, ripe bool) {
	undone = true
	for i, id := range m.ids() {
		fault := m.Report.Faults[i]
		if w.policy.Actions[fault.Class] != action || slices.Contains(m.undone, id) {
			continue
		}
		undone = false
		atOnce := fault.Reason == "GPULost" && action == v1.HealthActionTaint
		ripe = ripe || atOnce || w.now.Sub(fault.Since) >= DefaultDwell
	}
	return undone, ripe
}

// checkBrakes checks that the machines together permit to act on one.
func (w *world) checkBrakes(i int, m *machine) error {
	if together := w.failTogether(); !m.approved() && together >= 3 && together*5 > len(w.machines) {
		return errors.New("too many nodes have failed at a time")
	}
	for k := range w.machines {
		if k != i && w.machines[k].replaces() {
			return nil
		}
	}
	return errors.New("there is no other healthy node")
}

// replaces reports whether pods can run on the machine instead of another one.
func (m *machine) replaces() bool {
	healthy := !m.Watched || m.Reported && !m.faulty()
	return healthy && m.Usable && !m.Unschedulable && !m.Tainted && m.OtherActor == ""
}

// failTogether is the largest number of nodes that have failed within 10 minutes.
func (w *world) failTogether() int {
	most := 0
	for i := range w.machines {
		for _, first := range w.machines[i].Report.Faults {
			count := 0
			for k := range w.machines {
				if w.machines[k].Watched && slices.ContainsFunc(w.machines[k].Report.Faults, func(f gpuhealth.Fault) bool {
					after := f.Since.Sub(first.Since)
					return after >= 0 && after <= 10*time.Minute
				}) {
					count++
				}
			}
			most = max(most, count)
		}
	}
	return most
}
