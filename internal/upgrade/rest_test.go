package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// endsWell checks that without further faults the nodes come to rest, each done or with a reason that is named, and
// that all are done once the causes are removed.
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
		if err := errors.Join(e.atRest(c), e.wakesUp(c)); err != nil {
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
		return true, s.grant(plan.Slots)
	}
	if steps := effective(plan.Steps); len(steps) > 0 {
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
func effective(steps []Step) []*Step {
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

// atRest checks that each node which is not done has a reason, and either waits for a user, or for a time.
func (e *explorer) atRest(s *state) error {
	plan := e.plan(s.cluster())
	if err := s.layoutsAtRest(&plan); err != nil {
		return err
	}
	for name, progress := range plan.Report.Nodes {
		if progress.Reason == "" {
			return fmt.Errorf("%s rests without a named hold: %+v", name, progress)
		}
		if !plan.Until.IsZero() {
			continue
		}
		if err := endless(s.machine(name), &progress); err != nil {
			return err
		}
	}
	return nil
}

// wakesUp checks Until of the plan of a state in which nothing happens but by time: just before that time the plan is
// still the same, and from then on it is another one, or has a later time. Without one it never changes.
func (e *explorer) wakesUp(s *state) error {
	at := func(now time.Time) Plan {
		c := s.cluster()
		c.Now = now
		return e.plan(c)
	}
	plan, never := at(s.now), s.now.Add(100*limit)
	until := cmp.Or(plan.Until, never)
	if before := at(until.Add(-1)); hasSteps(&before) || !maps.Equal(before.Report.Nodes, plan.Report.Nodes) {
		return fmt.Errorf("the plan changes before %s, and nothing wakes the operator: %+v, was %+v", plan.Until,
			before.Report.Nodes, plan.Report.Nodes)
	}
	if plan.Until.IsZero() {
		return nil
	}
	if then := at(until); !hasSteps(&then) && !then.Until.IsZero() && !then.Until.After(until) {
		return fmt.Errorf("the operator wakes at %s, and has nothing to do: %+v", until, then.Report.Nodes)
	}
	return nil
}

// hasSteps reports whether something of the plan is carried out.
func hasSteps(plan *Plan) bool { return plan.Slots != nil || len(effective(plan.Steps)) > 0 }

// endless checks a node that no deadline ends.
func endless(m *machine, progress *Progress) error {
	queued := progress.Reason == v1.ReasonUpgradeQueued || progress.Reason == v1.ReasonUpgradeBudget
	switch {
	case progress.State.InProgress():
		return fmt.Errorf("%s has no deadline: %+v", m.Name, progress)
	case progress.State == StateFailed && !m.Record.Restarted && m.Record.Reason != v1.ReasonUpgradeUncordoned:
		return fmt.Errorf("%s is never tried again: %+v", m.Name, progress)
	case progress.State != StateFailed && !progress.Held && !queued:
		return fmt.Errorf("%s rests without a named hold: %+v", m.Name, progress)
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
			s.cureLayout(&s.machines[i])
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
	m.KubeletReady, m.Skip, m.Installs = true, false, true
	if m.foreign || m.orphaned {
		m.Unschedulable, m.foreign, m.orphaned = false, false, false
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
		idle := (m.State == StateNone || m.State == StateDone) && (record == nil || record.State == StateDone)
		if !idle || m.Unschedulable || !w.hasLayout(m) || m.Driver == nil || !m.Driver.Ready || m.Driver.Digest != m.Target {
			return false
		}
	}
	return true
}
