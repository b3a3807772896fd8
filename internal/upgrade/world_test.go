package upgrade

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pod is a pod of a user in the world.
type pod struct {
	WorkloadPod
	// user: it has GPUs; job: waitForCompletion selects it. Another one only leaves in a drain.
	user, job bool
}

// machine is a node of the world: what the planner sees, its pods, and what is only known here.
type machine struct {
	Node
	pods []pod
	// pool that the node moves to once it is released, with this target.
	poolTarget string
	// foreign: the cordon of another client. replaced: the operator has deleted a driver pod, and none was validated
	// since.
	// started is the last round that has started. gone: the Node is deleted.
	// orphaned: the operator's cordon, of which another client has removed all that shows it.
	foreign, replaced, gone, orphaned bool
	// pulled are the targets whose images are on the node.
	pulled  []string
	started int64
	mig     partitioner
	// version of the Node.
	version int
}

// world is a cluster that carries out what the planner wants, and in which things happen. Its values are never
// modified in place, so that a copy of the struct and of the machines is independent.
type world struct {
	now      time.Time
	machines []machine
	policies map[string]Policy
	slots    Slots
	// uids counts the created objects, and orders them.
	uids int
	// What the world does to new pods.
	driversFail, pullsFail, pullsHang, validatorsFail, validatorsMissing, podsStay bool
	// lost: the slots were deleted at some time.
	lost bool
	// layout is the MIG layout of the spec; empty for none. evicts: onBusy is drain.
	layout string
	evicts bool
}

func (w *world) clone() *world {
	c := *w
	c.machines = slices.Clone(w.machines)
	return &c
}

func (w *world) created() (types.UID, time.Time) {
	w.uids++
	return types.UID(fmt.Sprintf("uid-%d", w.uids)), epoch.Add(time.Duration(w.uids) * time.Nanosecond)
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// newMachine is a node with a validated driver.
func (w *world) newMachine(name, digest string) machine {
	uid, _ := w.created()
	driver, driverCreated := w.created()
	validator, validatorCreated := w.created()
	return machine{Node: Node{
		Name: name, UID: uid, KubeletReady: true, BootID: "boot-1", Installs: true, Target: digest, ValidatorWanted: true,
		Driver:    &Pod{Name: "driver-" + name, UID: driver, Created: driverCreated, Digest: digest, Ready: true},
		Validator: &Pod{Name: "validator-" + name, UID: validator, Created: validatorCreated, Ready: true},
	}}
}

// cluster is what the planner sees. The pods of users are read where it needs them.
func (w *world) cluster() *Cluster {
	c := &Cluster{Now: w.now, Policies: w.policies, Slots: w.slots, Nodes: make([]Node, 0, len(w.machines))}
	for i := range w.machines {
		m := &w.machines[i]
		if m.gone {
			continue
		}
		n := m.Node
		n.GPUReady = n.KubeletReady && n.Driver != nil && n.Driver.Ready
		if n.Validator != nil {
			n.Dependants = []Pod{*n.Validator}
		}
		if n.NeedsWorkload() && (n.upgrading() || w.slots.Valid(&n)) {
			n.Workload = m.workload()
		}
		n.MIG.Wanted, n.MIG.Evict = w.wanted(m), w.evicts
		c.Nodes = append(c.Nodes, n)
	}
	w.readUsers(c)
	return c
}

func (m *machine) workload() *Workload {
	workload := &Workload{}
	for _, p := range m.pods {
		if p.job {
			workload.Jobs = append(workload.Jobs, p.WorkloadPod)
		}
		if p.user {
			workload.Users = append(workload.Users, p.WorkloadPod)
		} else {
			workload.Others = append(workload.Others, p.WorkloadPod)
		}
	}
	return workload
}

func (m *machine) users() int { return len(m.workload().Users) }

func (w *world) machine(name string) *machine {
	for i := range w.machines {
		if w.machines[i].Name == name {
			return &w.machines[i]
		}
	}
	panic("no node " + name)
}

// apply carries out a step, and returns an error if it breaks a rule that every step has to keep.
func (w *world) apply(step *Step) error {
	m := w.machine(step.Node)
	switch step.Action {
	case ActionPatch:
		return w.patch(m, step.Patch)
	case ActionPull:
		uid, _ := w.created()
		m.Pull = &Pod{Name: "pull-" + m.Name, UID: uid, Created: w.now, Digest: m.Target}
	case ActionEndPull:
		m.Pull = nil
	case ActionEvict:
		return w.evict(m, step.Pods)
	case ActionLayout:
		return w.layoutPatch(m, step.Layout)
	case ActionDeleteDriver:
		return w.deleteDriver(m, step.Pods[0].UID)
	case ActionDeleteDependants:
		if m.Validator != nil && m.Validator.UID == step.Pods[0].UID {
			m.Validator = nil
		}
	default:
		return fmt.Errorf("unknown action %q", step.Action)
	}
	return nil
}

func (w *world) patch(m *machine, patch *Patch) error {
	if err := w.checkStart(m, patch); err != nil {
		return err
	}
	if u := patch.Unschedulable; u != nil && !*u {
		switch {
		case m.foreign:
			return errors.New("the cordon of another client is undone")
		case m.replaced && m.Installs && !m.validated():
			return errors.New("the node is uncordoned before its new driver is validated")
		}
	}
	m.write(patch)
	if patch.ReleasePool {
		if m.users() > 0 {
			return errors.New("the driver pool is left while pods use the GPUs")
		}
		m.Target, m.MoveTo, m.Driver, m.replaced = m.poolTarget, "", nil, true
	}
	return nil
}

// checkStart checks a patch with which an upgrade starts.
func (w *world) checkStart(m *machine, patch *Patch) error {
	if patch.Record == nil || !patch.Record.State.InProgress() || m.upgrading() {
		return nil
	}
	switch {
	case !w.slots.Valid(&m.Node) && !w.lost:
		return errors.New("an upgrade starts without a slot")
	case patch.Record.Round <= m.started:
		return errors.New("a round starts twice")
	case patch.Unschedulable == nil && !m.Unschedulable:
		return errors.New("an upgrade starts without a cordon")
	case w.lacksImages(m, patch.Record.Target):
		return errors.New("an upgrade starts though the images of the new driver are not pulled")
	}
	m.started = patch.Record.Round
	return nil
}

// lacksImages reports whether the policy wants the images of the target on the node before its upgrade starts, and they
// are not there. An upgrade whose record another client has removed started before.
func (w *world) lacksImages(m *machine, target string) bool {
	due := w.policies[m.Group].PullImages && m.ownRecord() != nil && m.MoveTo == "" && m.outdated()
	return due && !slices.Contains(m.pulled, target)
}

// write changes the Node.
func (m *machine) write(patch *Patch) {
	m.version++
	m.State, m.Record, m.Unreadable = patch.State, patch.Record, ""
	if m.Record == nil {
		m.started = 0
	}
	if u := patch.Unschedulable; u != nil {
		m.Unschedulable = *u
	}
	if patch.EndRequest {
		m.Requested = false
	}
	if patch.RememberCordon {
		m.InitiallyCordoned = true
	}
	if patch.ForgetCordon {
		m.InitiallyCordoned = false
	}
}

// validated reports whether the validator has passed with the driver pod.
func (m *machine) validated() bool {
	return m.Driver != nil && m.Driver.Ready && m.Validator != nil && m.Validator.Ready &&
		m.Validator.Created.After(m.Driver.Created)
}

func (w *world) evict(m *machine, pods []WorkloadPod) error { //nolint:gocyclo // It is a list of rules.
	upgrading := m.Record != nil && m.Record.State.InProgress() && m.Record.UID == m.UID
	drained := upgrading && m.Record.State == StateDrain
	if drain := m.MIG.Drain; !upgrading && drain != nil && drain.State.Evicts() {
		upgrading, drained = true, drain.State == DrainAll
	}
	switch {
	case !upgrading:
		return errors.New("pods are evicted outside an upgrade")
	case !m.Unschedulable:
		return errors.New("pods are evicted from a node that is not cordoned")
	}
	kept := []pod{}
	for _, p := range m.pods {
		evicted := slices.ContainsFunc(pods, func(e WorkloadPod) bool { return e.UID == p.UID })
		switch {
		case !evicted:
		case p.Forbidden:
			return errors.New("a pod is evicted that the policy forbids to evict")
		case !p.user && !drained:
			return errors.New("a pod without GPUs is evicted")
		case p.Blocked == "" && m.KubeletReady:
			p.Ending = true
		}
		kept = append(kept, p)
	}
	m.pods = kept
	return nil
}

func (w *world) deleteDriver(m *machine, uid types.UID) error {
	switch {
	case m.Driver == nil || m.Driver.UID != uid:
		return nil
	case m.users() > 0:
		return errors.New("the driver pod is deleted while pods use the GPUs")
	case !m.Unschedulable:
		return errors.New("the driver pod is deleted on a node that is not cordoned")
	case m.Record == nil || m.Record.State != StatePodRestart:
		return errors.New("the driver pod is deleted outside an upgrade")
	case !w.lost && m.isFirst(uid) && w.lacksImages(m, m.Target):
		return errors.New("the driver pod is deleted though the images of the new driver are not pulled")
	}
	m.Driver, m.replaced = nil, true
	return nil
}

// isFirst reports whether the driver pod is the one that the upgrade has found, which works until it is deleted.
func (m *machine) isFirst(driver types.UID) bool {
	return driver == m.Record.DriverPod && !m.Record.Restarted && !m.Record.Moves
}

// happening is something that Kubernetes and the operands do by themselves.
type happening struct {
	node int
	what string
}

// next returns what happens by itself.
func (w *world) next() []happening {
	var all []happening
	for i := range w.machines {
		m := &w.machines[i]
		if m.gone || !m.KubeletReady {
			continue
		}
		for _, what := range []string{m.nextOfDriver(), w.nextOfValidator(m), w.nextOfPods(m), m.nextOfLayout()} {
			if what != "" {
				all = append(all, happening{i, what})
			}
		}
	}
	return all
}

// waits reports whether the pod is neither ready nor failed.
func (p *Pod) waits() bool { return p != nil && !p.Ready && !p.Failed }

func (m *machine) nextOfDriver() string {
	switch driver := m.Driver; {
	case driver == nil && m.Installs && m.Target != "":
		return "driver created"
	case driver != nil && driver.Ending:
		return "driver ends"
	case driver.waits() && !(driver.Unloading && m.users() > 0):
		return "driver ready"
	default:
		return ""
	}
}

func (w *world) nextOfValidator(m *machine) string {
	switch running := m.Driver != nil && m.Driver.Ready; {
	case running && m.Validator == nil && !w.validatorsMissing:
		return "validator created"
	case running && m.Validator.waits():
		return "validator passes"
	default:
		return ""
	}
}

func (w *world) nextOfPods(m *machine) string {
	switch {
	case m.Pull.waits() && !w.pullsHang:
		return "pulled"
	case !w.podsStay && slices.ContainsFunc(m.pods, func(p pod) bool { return p.Ending }):
		return "pods end"
	default:
		return ""
	}
}

// happen lets one of them happen.
func (w *world) happen(h happening) {
	m := &w.machines[h.node]
	switch h.what {
	case "driver created":
		uid, created := w.created()
		m.Driver = &Pod{Name: "driver-" + m.Name, UID: uid, Created: created, Digest: m.Target, Unloading: true}
	case "driver ends":
		m.Driver = nil
	case "driver ready":
		changed := *m.Driver
		changed.Unloading = false
		if w.driversFail {
			changed.Failed, changed.Reason = true, "ContainerCrashed"
			changed.Message = "container nvidia-driver-ctr: exit code 1"
		} else {
			changed.Ready = true
		}
		m.Driver = &changed
	case "validator created":
		uid, created := w.created()
		m.Validator = &Pod{Name: "validator-" + m.Name, UID: uid, Created: created}
	case "validator passes":
		changed := *m.Validator
		if w.validatorsFail {
			changed.Failed, changed.Reason, changed.Message = true, "ContainerCrashed", "cuda-validation: no device found"
		} else {
			changed.Ready = true
		}
		m.Validator = &changed
	case "pulled":
		changed := *m.Pull
		if w.pullsFail {
			changed.Failed, changed.Message = true, "image driver:"+m.Target+" was not found"
		} else {
			changed.Ready, m.pulled = true, append(slices.Clone(m.pulled), m.Pull.Digest)
		}
		m.Pull = &changed
	case "MIG manager begins", "MIG manager ends":
		m.changeLayout(h.what)
	case "pods end":
		m.pods = slices.DeleteFunc(slices.Clone(m.pods), func(p pod) bool { return p.Ending })
	}
}

// String shows the world, for messages.
func (w *world) String() string {
	var out strings.Builder
	for i := range w.machines {
		m := &w.machines[i]
		fmt.Fprintf(&out, "  %s: label=%q cordoned=%t foreign=%t kubelet=%t requested=%t skip=%t pods=%v\n", m.Name, m.State,
			m.Unschedulable, m.foreign, m.KubeletReady, m.Requested, m.Skip, m.pods)
		for _, p := range []*Pod{m.Driver, m.Validator, m.Pull} {
			if p != nil {
				fmt.Fprintf(&out, "    %s %s %s ready=%t failed=%t ending=%t unloading=%t\n", p.Name, p.UID, p.Digest, p.Ready,
					p.Failed, p.Ending, p.Unloading)
			}
		}
		if m.Record != nil {
			fmt.Fprintf(&out, "    %s\n", m.Record.Encode())
		}
		if m.MIG.Partitioned {
			fmt.Fprintf(&out, "    layout %q (operator's %q) ended=%t changing=%t %+v\n", m.MIG.Requested, m.mig.written,
				m.MIG.Ended, m.MIG.Changing, m.mig)
		}
		if m.MIG.Drain != nil {
			fmt.Fprintf(&out, "    %s\n", m.MIG.Drain.Encode())
		}
	}
	policy := w.policies[modelGroup]
	fmt.Fprintf(&out, "  now=%s slots=%v auto=%t paused=%t parallel=%d unavailable=%s layout=%s evicts=%t\n",
		w.now.Sub(epoch), w.slots, policy.Auto, policy.Paused, policy.MaxParallel, policy.MaxUnavailable.String(), w.layout,
		w.evicts)
	return out.String()
}
