package upgrade

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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
		s.secondSlots(), s.layout, s.evicts)
}

// secondSlots is the slots that the second manager may still write, without names.
func (s *state) secondSlots() string {
	if s.slots2 == nil || !maps.Equal(s.slots, s.slotsOld) {
		return ""
	}
	return "second"
}

func (s *state) machineKey(i int) string { //nolint:gocyclo // It is a list of fields.
	m := &s.machines[i]
	b := make(keyText, 0, 160)
	word, flag := b.word, b.flag
	word(string(m.State))
	word(m.Target)
	flag(m.Requested, m.Skip, m.Unschedulable, m.KubeletReady, m.InitiallyCordoned, m.foreign, m.replaced,
		m.orphaned, m.Installs)
	if r := m.Record; r != nil {
		word(string(r.State))
		word(r.Target)
		word(r.Reason)
		flag(r.Requested, r.Cordoned, r.Restarted, r.Moves, r.BootID == m.BootID, s.now.Sub(r.Since) >= limit,
			m.Driver != nil && m.Driver.UID == r.DriverPod, r.DriverPod == "", r.RetryAt.IsZero(), s.now.Before(r.RetryAt),
			m.started == r.Round, r.Pulled == m.Target)
	}
	round := m.Node.round()
	slot, granted := s.slots[m.Name]
	flag(granted, granted && slot.Round == round, granted && slot.Round < round)
	if second, found := s.slots2[m.Name]; found && s.secondSlots() != "" {
		flag(true, second.Round == round, second.Round < round)
	}
	s.podKeys(&b, m)
	if s.layout != "" {
		s.layoutKey(&b, m)
	}
	if step := s.patchOf(i); step != nil && step.Patch == nil {
		word("second " + step.Layout.Request)
		flag(step.Layout.Drain == nil, step.Layout.Unschedulable != nil)
		if drain := step.Layout.Drain; drain != nil {
			word(string(drain.State))
			flag(drain.Cordoned, drain.Message == "")
		}
	} else if step != nil {
		word("second")
		word(string(step.Patch.State))
		if r := step.Patch.Record; r != nil {
			flag(r.Requested, r.Cordoned, r.Restarted, r.Reason == "", m.Record != nil && r.Round == m.Record.Round)
		}
		flag(step.Patch.Unschedulable != nil, step.Patch.EndRequest)
	}
	return string(b)
}

// round is the round of the node's record; 0 without one.
func (n *Node) round() int64 {
	if record := n.ownRecord(); record != nil {
		return record.Round
	}
	return 0
}

// keyText is a part of a key.
type keyText []byte

func (b *keyText) flag(values ...bool) {
	for _, v := range values {
		if v {
			*b = append(*b, '1')
		} else {
			*b = append(*b, '0')
		}
	}
	*b = append(*b, ' ')
}

func (b *keyText) word(text string) { *b = append(append(*b, text...), ' ') }

// podKeys adds what counts of the pods of a node.
func (s *state) podKeys(b *keyText, m *machine) {
	for _, p := range []*Pod{m.Driver, m.Validator, m.Pull} {
		if p == nil {
			b.word("-")
			continue
		}
		b.word(p.Digest)
		b.flag(p.Ready, p.Failed, p.Ending, p.Unloading)
	}
	if m.Driver != nil && m.Driver.Unloading {
		b.flag(s.now.Sub(m.Driver.Created) >= limit)
	}
	if m.Driver != nil && m.Validator != nil {
		b.flag(m.Validator.Created.After(m.Driver.Created))
	}
	if m.Pull != nil {
		b.flag(s.now.Sub(m.Pull.Created) >= limit)
	}
	for _, p := range m.pods {
		b.flag(p.user, p.job, p.Ending, p.Blocked != "", p.Forbidden)
	}
}

// patchOf is the patch of the node that the second manager may still write.
func (s *state) patchOf(i int) *Step {
	if s.patches == nil || s.patches[i] == nil || s.versions[i] != s.machines[i].version {
		return nil
	}
	return s.patches[i]
}
