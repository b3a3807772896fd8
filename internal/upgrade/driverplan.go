package upgrade

import (
	"cmp"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

const maxMessage = drain.MaxMessage

// driverPlan plans the upgrade of the driver of one node.
type driverPlan struct {
	node *Node
	// record of the node; the zero Record if it has none, and own is false.
	record Record
	own    bool
	// state that the node is in.
	state State
	// policy of the node; governed is false if it has none.
	policy   Policy
	governed bool
	// slot: the node may be upgraded in this round. ahead is how many rounds its slot is ahead of the record. granted: it
	// has a slot for an upgrade, which may not count.
	slot, granted bool
	ahead         int64
	// drain is that of the node while its state evicts pods, or waits for jobs.
	drain drain.Drain
	// beyond is why the node may not begin although it has a slot, see budget.
	beyond refusal
	now    time.Time
}

// turn is what the plan of one node results in.
type turn struct {
	// step is nil if the node waits.
	step *Step
	// progress is nil if there is nothing to report.
	progress *Progress
	// until is when the turn changes by time alone; zero if never.
	until time.Time
	// wants: the node waits for a slot. keeps: it has one, has not begun, and waits with it, until a deadline.
	wants, keeps bool
}

// turnOf is what a node does that is drained, without a report.
func turnOf(waiting drain.Answer) turn {
	t := turn{until: times.Earlier(waiting.Until, waiting.Deadline)}
	if waiting.Evict != nil {
		t.step = &Step{Action: ActionEvict, Pods: waiting.Evict, Why: waiting.Why}
	}
	return t
}

func (c *Cluster) driverPlan(n *Node) *driverPlan {
	p := &driverPlan{node: n, now: c.Now, state: n.currentState(), slot: c.Slots.Valid(n)}
	p.policy, p.governed = c.Policies[n.Group]
	if record := n.ownRecord(); record != nil {
		p.record, p.own = *record, true
		p.record.RetryAt = p.policy.plausible(record.RetryAt, c.Now)
	}
	p.drain = c.drain(n, p.record.Since)
	ahead, granted := c.Slots.ahead(n)
	if p.granted = granted; p.slot {
		p.ahead = ahead
	}
	return p
}

// currentState is the state of the node from its label and its record. A label beside the record of a deleted Node was
// copied with it.
func (n *Node) currentState() State {
	switch record := n.ownRecord(); {
	case record != nil:
		return effectiveState(n.State, record.State)
	case n.Record != nil:
		return StateNone
	default:
		return n.State
	}
}

// effectiveState is the state of a node with a label and a record, which this operator writes together. The record
// counts: a user may have edited the label. An idle node is adopted if its label has a state that is not idle.
func effectiveState(label, record State) State {
	if record.InProgress() || label.idle() {
		return record
	}
	return label
}

// idle reports whether no upgrade is under way in the state. The label of such a node may have any of these states.
func (s State) idle() bool {
	switch s {
	case StateNone, StateRequired, StateDone, StateFailed:
		return true
	default:
		return false
	}
}

// turn returns what the node does now. It does not keep a slot that it does not use: others wait for it.
func (p *driverPlan) turn() turn {
	t := p.failing(p.decide())
	inProgress := p.own && p.record.State.InProgress()
	if p.slot && t.step == nil && !t.keeps && !inProgress && p.governed {
		return p.giveBack(t)
	}
	return t
}

// beginTime is how long calls for a node may fail, or the end of an earlier pull pod may take, before the node gives
// back a slot with which it has not begun.
const beginTime = 5 * time.Minute

// failing is the turn of a node for which calls fail, such as for a pod that a quota or an admission policy refuses. It
// names the answer. A node whose driver cannot be replaced because of that does not keep its slot for good: others wait
// for it.
func (p *driverPlan) failing(t turn) turn {
	n := p.node
	if n.Failing == "" || t.step == nil && (n.Workload != nil || !n.NeedsWorkload()) {
		return t
	}
	if t.progress != nil {
		t.progress = p.progress(v1.ReasonReconcileFailed, p.failure(&t), true)
	}
	limit := p.failingLimit(&t)
	if limit == 0 {
		return t
	}
	until := n.FailingSince.Add(limit)
	if p.now.Before(until) {
		t.until = times.Earlier(t.until, until)
		return t
	}
	ended := p.notBegun(v1.ReasonReconcileFailed, n.Failing, "the upgrade cannot begin: "+n.Failing)
	if p.state.InProgress() {
		ended = p.fail(v1.ReasonReconcileFailed, n.Failing)
	}
	// This patch may be refused, too.
	ended.progress = p.progress(v1.ReasonReconcileFailed, n.Failing, true)
	return ended
}

// failure is what the report says of the calls that fail. On a cordoned node all else waits for the new images.
func (p *driverPlan) failure(t *turn) string {
	if t.step != nil && t.step.Action == ActionPull && p.state.InProgress() {
		return "waits for the new images: " + p.node.Failing
	}
	return p.node.Failing
}

// failingLimit returns how long the calls that the turn needs may fail; 0 for no other limit than that of the state. A
// cordoned node whose pods cannot be read, or whose images cannot be pulled, does nothing of what its state waits for.
func (p *driverPlan) failingLimit(t *turn) time.Duration {
	switch {
	case p.own && p.state == StateRequired && p.slot:
		return beginTime
	case p.own && p.state.InProgress() && !p.restarted() &&
		(t.step == nil || t.step.Action == ActionPull || t.step.Action == ActionEndPull):
		return drain.DeadTime
	default:
		return 0
	}
}

func (p *driverPlan) decide() turn {
	n := p.node
	switch {
	case n.Pull != nil && !n.Pull.Ending && !p.pulls():
		return p.act(ActionEndPull, n.Pull, "its images are not pulled in advance any more")
	case !n.Installs:
		return p.leave()
	case n.Unreadable != "":
		return p.unreadable()
	case !p.own || !p.record.State.InProgress() && !p.state.idle():
		return p.foreign()
	case p.record.State.InProgress() && p.record.Since.After(p.now):
		return p.correctSince()
	default:
		return p.continued()
	}
}

// continued is a node with a record of this operator.
func (p *driverPlan) continued() turn {
	if p.record.Cordoned && !p.node.Unschedulable && p.keepsGoing() {
		return p.forgetCordon()
	}
	return p.next()
}

// next returns what a node with a record does.
func (p *driverPlan) next() turn {
	if t, acts := p.pullOther(); acts {
		return t
	}
	switch p.state {
	case StateRequired:
		return p.required()
	case StateWaitForJobs:
		return p.waitForJobs()
	case StatePodDeletion:
		return p.evict(drain.Users)
	case StateDrain:
		return p.evict(drain.All)
	case StatePodRestart:
		return p.podRestart()
	case StateValidation:
		return p.validation()
	case StateFailed:
		return p.failed()
	default:
		return p.idle()
	}
}

// pullOther returns the step that pulls the images of another target than the one that the node was cordoned for, or
// what ends the upgrade: the pull may be refused for a while, and must not delay that. It reports whether there is one.
// What the node waits for goes on while the images are pulled.
func (p *driverPlan) pullOther() (turn, bool) {
	if !p.state.InProgress() || !p.pulls() {
		return turn{}, false
	}
	if t, ended := p.cutShort(); ended {
		return t, true
	}
	t, pulled := p.pull()
	return t, !pulled && t.step != nil
}

// wait is a turn without a step.
func (p *driverPlan) wait(reason, message string) turn {
	return turn{progress: p.progress(reason, message, false)}
}

// await is the turn of a node that waits for its pods or its kubelet.
func (p *driverPlan) await(waiting drain.Answer) turn {
	t := turnOf(waiting)
	t.progress = p.progress(cmp.Or(waiting.Reason, stateReason(p.state)), waiting.Message, waiting.Held)
	return t
}

// hold is a turn without a step, of a node that does not go on by itself.
func (p *driverPlan) hold(reason, message string) turn {
	return turn{progress: p.progress(reason, message, true)}
}

func (p *driverPlan) progress(reason, message string, held bool) *Progress {
	return &Progress{
		State: p.state, Since: p.record.Since, Held: held, Reason: reason, Message: text.Truncate(message, maxMessage),
	}
}

// act is a turn with a step on a pod of the operator, or on none.
func (p *driverPlan) act(action Action, pod *Pod, why string) turn {
	step := &Step{Action: action, Why: why}
	if pod != nil {
		step.Pods = []WorkloadPod{{Name: pod.Name, UID: pod.UID}}
	}
	return turn{step: step, progress: p.progress(stateReason(p.state), "", false)}
}

// stateReason is the reason of a node that is in the state and goes on.
func stateReason(state State) string {
	switch state {
	case StateRequired:
		return v1.ReasonUpgradePulling
	case StateWaitForJobs:
		return v1.ReasonUpgradeWaitingForJobs
	case StatePodDeletion, StateDrain:
		return v1.ReasonUpgradeEvicting
	case StatePodRestart:
		return v1.ReasonUpgradeRestarting
	case StateValidation:
		return v1.ReasonUpgradeValidating
	default:
		return ""
	}
}

// by is the turn, or once the limit of the state has passed, that of expired. 0 means no limit.
func (p *driverPlan) by(limit time.Duration, waiting turn, expired func() turn) turn {
	if limit == 0 {
		return waiting
	}
	deadline := p.record.Since.Add(limit)
	if !p.now.Before(deadline) {
		return expired()
	}
	waiting.until = times.Earlier(waiting.until, deadline)
	return waiting
}

// restarted reports whether the node has no working driver until its new one is validated.
func (p *driverPlan) restarted() bool {
	if p.record.Restarted {
		return true
	}
	if p.state != StatePodRestart && p.state != StateValidation {
		return false
	}
	driver := p.node.Driver
	return driver == nil || driver.Ending || driver.UID != p.record.DriverPod
}

// keepsGoing reports whether the state does not end when another client uncordons the node.
func (p *driverPlan) keepsGoing() bool {
	return p.state == StateRequired || p.state == StateFailed || p.restarted()
}
