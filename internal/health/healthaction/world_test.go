package healthaction

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
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

// reading is a plan that a manager still carries out, and what it was made from. It never changes.
type reading struct {
	from *world
	// steps has one for each machine.
	steps []readStep
}

// readStep is what a reading leads to on one machine, and the version of the Node that was read.
type readStep struct {
	Step
	planned bool
	// text describes the step.
	text    string
	version int
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
			Report: gpuhealth.Report{Boot: "0"}, InService: true, DriverReady: true,
		}})
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.machines = slices.Clone(w.machines)
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

// text is a description that is built from many parts, without the cost of fmt: the model needs one of each state.
type text []byte

func (t *text) add(parts ...string) {
	for _, part := range parts {
		*t = append(*t, part...)
	}
}

func (t *text) flags(values ...bool) {
	for _, value := range values {
		*t = strconv.AppendBool(append(*t, ' '), value)
	}
}

func (t *text) time(at time.Time) { *t = strconv.AppendInt(*t, int64(at.Sub(epoch)/time.Second), 10) }

func (w *world) String() string {
	t := text{}
	w.describe(&t)
	return string(t)
}

// describe has all of the world that counts, but the managers.
func (w *world) describe(t *text) {
	t.add("at ")
	t.time(w.now)
	t.add(" s, policy ")
	if w.policy == nil {
		t.add("none")
	} else {
		t.add(string(w.policy.Actions[gpuhealth.Reset]), "/", string(w.policy.Actions[gpuhealth.Reboot]),
			" maxNodes ", strconv.Itoa(w.policy.MaxNodes.IntValue()))
	}
	t.add(", peak ", strconv.Itoa(w.peak))
	for i := range w.machines {
		t.add("\n  ")
		w.machines[i].describe(t)
	}
}

// describe has all of the machine that counts, but its version.
func (m *machine) describe(t *text) {
	t.add(m.Name, m.Report.Boot, " faults")
	for i := range m.Report.Faults {
		f := &m.Report.Faults[i]
		t.add(" ", f.PCI, " ", string(f.Class), " ")
		t.time(f.Since)
	}
	t.add(" record ")
	if m.HasRecord {
		t.add(string(m.Record.UID), " ", string(m.Record.State), " ", string(m.Record.Action), " ", m.Record.Fault, " ")
		t.add(m.Record.Undone...)
	}
	t.add(" consent ", m.Consent, " undone ")
	t.add(m.undone...)
	t.flags(m.failsLater)
	t.add(" by ", m.cordoner)
	t.flags(m.Unschedulable, m.Tainted, m.Reported, m.Watched, m.InService, m.Upgrading)
	t.add(" ", m.OtherActor)
}

// key identifies the state. The managers are alike: it does not matter which of them carries out which plan.
func (w *world) key() string {
	t := make(text, 0, 1<<10)
	w.describe(&t)
	one, other := w.remaining(w.managers[0]), w.remaining(w.managers[1])
	t.add("|", min(one, other), "|", max(one, other))
	return string(t)
}

// remaining describes the steps that the reading still leads to.
func (w *world) remaining(r *reading) string {
	if r == nil {
		return ""
	}
	var t text
	for i := range w.machines {
		if _, due := r.due(w, i); due {
			t.add(strconv.Itoa(i), r.steps[i].text)
		}
	}
	return string(t)
}

// due is the step of the machine that the reading still leads to: the API server rejects it if the Node has changed.
func (r *reading) due(w *world, i int) (*Step, bool) {
	read := &r.steps[i]
	return &read.Step, read.planned && read.version == w.machines[i].version
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
	r := &reading{from: w.clone(), steps: make([]readStep, len(w.machines))}
	r.from.managers, r.from.path = [2]*reading{}, nil
	planned := plan(w.cluster())
	for i := range w.machines {
		read := &r.steps[i]
		read.version = w.machines[i].version
		for _, step := range planned.Steps {
			if step.Node == w.machines[i].Name {
				read.Step, read.planned = step, true
			}
		}
		if read.planned {
			read.text = read.describe()
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
	return healthy && m.InService && !m.Unschedulable && !m.Tainted && m.OtherActor == ""
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
