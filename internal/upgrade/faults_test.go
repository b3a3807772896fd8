package upgrade

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// fault is something that disturbs an upgrade: a failure, or a person.
type fault struct {
	what   string
	global bool
	due    func(s *state, i int) bool
	happen func(s *state, i int)
}

func always(*state, int) bool { return true }

// onNode is a fault of one node.
func onNode(what string, due func(*machine) bool, happen func(*machine)) fault {
	return fault{what: what,
		due:    func(s *state, i int) bool { return due(&s.machines[i]) },
		happen: func(s *state, i int) { happen(&s.machines[i]) }}
}

// edit is an edit of the policy.
func edit(what string, change func(*Policy)) fault {
	return fault{what: what, global: true, due: always, happen: func(s *state, _ int) {
		s.setPolicy(change)
		s.peak = max(s.peak, s.policy().MaxParallel)
	}}
}

// retarget is an edit of the driver.
func retarget(what, from, to string) fault {
	return fault{what: what, global: true,
		due: func(s *state, _ int) bool { return s.machines[0].Target == from },
		happen: func(s *state, _ int) {
			for i := range s.machines {
				s.machines[i].Target = to
			}
		}}
}

// changed is the pod with a change.
func changed(p *Pod, change func(*Pod)) *Pod {
	c := *p
	change(&c)
	return &c
}

func hasRecord(s *state, i int) bool { return s.machines[i].Record != nil }

// forget removes the record of a node. Whose cordon it has can only be seen by its label.
func (s *state) forget(i int) {
	m := &s.machines[i]
	m.Record, m.started, m.replaced = nil, 0, false
	s.orphan(i)
}

// orphan keeps who has cordoned the node, if that cannot be seen any more.
func (s *state) orphan(i int) {
	m := &s.machines[i]
	known := s.claims(i)
	m.orphaned = m.Unschedulable && !known && !m.foreign
	m.foreign = m.foreign && m.Unschedulable && !known
}

// claims reports whether a cordon of the node counts as the operator's: by its record; without one by its label.
func (s *state) claims(i int) bool {
	m := &s.machines[i]
	switch slot := s.slots.Valid(&m.Node); {
	case m.MIG.Drain.Cordons(m.UID):
		return true
	case m.Record != nil || m.InitiallyCordoned:
		return m.Record != nil && m.Record.Cordoned
	default:
		return m.State.InProgress() && (m.Installs || slot)
	}
}

// loseSlots removes the slots, and with them what is known of the cordons of nodes without a record.
func (s *state) loseSlots(int) {
	s.slots, s.lost = Slots{}, true
	for i := range s.machines {
		if s.machines[i].Record == nil {
			s.orphan(i)
		}
	}
}

// faults are all that the model tries.
var faults = []fault{
	{what: "an admin cordons", due: func(s *state, i int) bool { return !s.machines[i].Unschedulable },
		happen: func(s *state, i int) {
			// Who has cordoned a node cannot be seen if it was uncordoned and cordoned before the planner looked.
			s.machines[i].Unschedulable, s.machines[i].foreign = true, !s.claims(i)
		}},
	onNode("an admin uncordons", func(m *machine) bool { return m.Unschedulable }, func(m *machine) {
		m.Unschedulable, m.foreign = false, false
	}),
	onNode("the node dies", func(m *machine) bool { return m.KubeletReady }, func(m *machine) { m.KubeletReady = false }),
	onNode("the node returns, rebooted", func(m *machine) bool { return !m.KubeletReady }, func(m *machine) {
		m.KubeletReady, m.BootID = true, m.BootID+"'"
		if m.Driver != nil {
			m.Driver = changed(m.Driver, func(p *Pod) { p.Ready = false })
		}
	}),
	onNode("the driver pod fails", func(m *machine) bool { return m.Driver != nil && !m.Driver.Failed }, func(m *machine) {
		m.Driver = changed(m.Driver, func(p *Pod) { p.Ready, p.Failed, p.Reason = false, true, "ContainerCrashed" })
	}),
	onNode("the driver pod recovers",
		func(m *machine) bool { return m.Driver != nil && m.Driver.Failed },
		func(m *machine) {
			m.Driver = changed(m.Driver, func(p *Pod) { p.Failed, p.Reason = false, "" })
		}),
	onNode("a user deletes the driver pod",
		func(m *machine) bool { return m.Driver != nil },
		func(m *machine) { m.Driver = nil }),
	onNode("the validator fails",
		func(m *machine) bool { return m.Validator != nil && !m.Validator.Failed },
		func(m *machine) {
			m.Validator = changed(m.Validator, func(p *Pod) { p.Ready, p.Failed, p.Reason = false, true, "ContainerCrashed" })
		}),
	onNode("the validator pod is lost",
		func(m *machine) bool { return m.Validator != nil },
		func(m *machine) { m.Validator = nil }),
	onNode("a pod with GPUs arrives", func(m *machine) bool { return len(m.pods) < 2 }, func(m *machine) {
		p := pod{user: true}
		p.Name, p.UID = "late", "late"
		m.pods = append(slices.Clone(m.pods), p)
	}),
	onNode("a pod with GPUs arrives that may not be evicted",
		func(m *machine) bool { return m.MIG.Partitioned && len(m.pods) == 1 },
		func(m *machine) {
			p := pod{user: true}
			p.WorkloadPod = notebook(true)
			m.pods = append(slices.Clone(m.pods), p)
		}),
	onNode("a PDB protects the pods",
		func(m *machine) bool { return len(m.pods) > 0 && m.pods[0].Blocked == "" },
		func(m *machine) {
			m.pods = slices.Clone(m.pods)
			m.pods[0].Blocked = "PDB team-a/web allows 0 disruptions"
		}),
	onNode("the pods end", func(m *machine) bool { return len(m.pods) > 0 }, func(m *machine) { m.pods = nil }),
	onNode("a user excludes the node", func(m *machine) bool { return !m.Skip }, func(m *machine) { m.Skip = true }),
	onNode("a user includes the node", func(m *machine) bool { return m.Skip }, func(m *machine) { m.Skip = false }),
	onNode("a user requests the upgrade",
		func(m *machine) bool { return !m.Requested },
		func(m *machine) { m.Requested = true }),
	retarget("the driver has a newer target", "b", "c"),
	retarget("the driver has its old target", "b", "a"),
	edit("a user pauses or continues", func(p *Policy) { p.Paused = !p.Paused }),
	edit("a user switches autoUpgrade", func(p *Policy) { p.Auto = !p.Auto }),
	edit("maxParallelUpgrades 1 or 2", func(p *Policy) { p.MaxParallel = 3 - p.MaxParallel }),
	edit("maxUnavailable 1 or 2", func(p *Policy) { p.MaxUnavailable = intstr.FromInt32(3 - p.MaxUnavailable.IntVal) }),
	onNode("a person sets the MIG layout",
		func(m *machine) bool { return m.MIG.Partitioned && m.MIG.Requested != "z" },
		func(m *machine) { m.MIG.Requested = "z" }),
	onNode("a person removes the MIG layout",
		func(m *machine) bool { return m.MIG.Partitioned && m.MIG.Requested != "" },
		func(m *machine) { m.MIG.Requested = "" }),
	onNode("the MIG manager is taken off the node",
		func(m *machine) bool { return m.MIG.Partitioned || m.MIG.Off },
		func(m *machine) { m.MIG.Partitioned, m.MIG.Off = false, false }),
	onNode("the MIG manager is paused",
		func(m *machine) bool { return m.MIG.Partitioned },
		func(m *machine) { m.MIG.Partitioned, m.MIG.Off = false, true }),
	onNode("the MIG manager goes on",
		func(m *machine) bool { return m.MIG.Off },
		func(m *machine) { m.MIG.Partitioned, m.MIG.Off = true, false }),
	{what: "the spec wants another MIG layout", global: true,
		due:    func(s *state, _ int) bool { return s.layout == "y" },
		happen: func(s *state, _ int) { s.layout = "w" }},
	{what: "the spec wants the MIG layout that the nodes had", global: true,
		due:    func(s *state, _ int) bool { return s.layout == "y" },
		happen: func(s *state, _ int) { s.layout = "x" }},
	{what: "onBusy is hold or drain", global: true,
		due:    func(s *state, _ int) bool { return s.layout != "" },
		happen: func(s *state, _ int) { s.evicts = !s.evicts }},
	{what: "a client removes the record and the label", due: hasRecord, happen: func(s *state, i int) {
		s.machines[i].State = StateNone
		s.forget(i)
	}},
	{what: "a client removes the record and the label, and uncordons", due: hasRecord, happen: func(s *state, i int) {
		s.machines[i].State, s.machines[i].Unschedulable = StateNone, false
		s.forget(i)
	}},
	{what: "a client removes the record", due: hasRecord, happen: (*state).forget},
	onNode("a client writes an earlier round",
		func(m *machine) bool { return m.Record != nil && m.Record.Round > 1 },
		func(m *machine) {
			record := *m.Record
			record.Round = 1
			m.Record, m.started = &record, 0
		}),
	onNode("the driver is taken off the node", func(m *machine) bool { return m.Installs && m.Record != nil },
		func(m *machine) { m.Installs = false }),
	{what: "the registry fails", global: true,
		due:    func(s *state, _ int) bool { return !s.pullsFail && s.policy().PullImages },
		happen: func(s *state, _ int) { s.pullsFail = true }},
	{what: "the slots are lost", global: true, due: func(s *state, _ int) bool { return len(s.slots) > 0 },
		happen: (*state).loseSlots},
	{what: "the deadlines pass", global: true, due: always, happen: func(s *state, _ int) { s.now = s.now.Add(limit) }},
}
