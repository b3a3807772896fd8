package upgrade

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// maxMessage is the limit of a message in bytes.
const maxMessage = 128

// visit plans one node.
type visit struct {
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
	// beyond is why the node may not begin although it has a slot, see budget.
	beyond refusal
	now    time.Time
}

// turn is what a visit results in.
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

func (c *Cluster) visit(n *Node) *visit {
	v := &visit{node: n, now: c.Now, state: n.currentState(), slot: c.Slots.Valid(n)}
	v.policy, v.governed = c.Policies[n.Group]
	if record := n.ownRecord(); record != nil {
		v.record, v.own = *record, true
		v.record.RetryAt = v.policy.plausible(record.RetryAt, c.Now)
	}
	ahead, granted := c.Slots.ahead(n)
	if v.granted = granted; v.slot {
		v.ahead = ahead
	}
	return v
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
func (v *visit) turn() turn {
	t := v.failing(v.decide())
	inProgress := v.own && v.record.State.InProgress()
	if v.slot && t.step == nil && !t.keeps && !inProgress && v.governed {
		return v.giveBack(t)
	}
	return t
}

// beginTime is how long calls for a node may fail, or the end of an earlier pull pod may take, before the node gives
// back a slot with which it has not begun.
const beginTime = 5 * time.Minute

// failing is the turn of a node for which calls fail, such as for a pod that a quota or an admission policy refuses. It
// names the answer. A node whose driver cannot be replaced because of that does not keep its slot for good: others wait
// for it.
func (v *visit) failing(t turn) turn {
	n := v.node
	if n.Failing == "" || t.step == nil && (n.Workload != nil || !n.NeedsWorkload()) {
		return t
	}
	if t.progress != nil {
		t.progress = v.progress(v1.ReasonReconcileFailed, v.failure(&t), true)
	}
	limit := v.failingLimit(&t)
	if limit == 0 {
		return t
	}
	until := n.FailingSince.Add(limit)
	if v.now.Before(until) {
		t.until = times.Earlier(t.until, until)
		return t
	}
	ended := v.notBegun(v1.ReasonReconcileFailed, n.Failing, "the upgrade cannot begin: "+n.Failing)
	if v.state.InProgress() {
		ended = v.fail(v1.ReasonReconcileFailed, n.Failing)
	}
	// This patch may be refused, too.
	ended.progress = v.progress(v1.ReasonReconcileFailed, n.Failing, true)
	return ended
}

// failure is what the report says of the calls that fail. On a cordoned node all else waits for the new images.
func (v *visit) failure(t *turn) string {
	if t.step != nil && t.step.Action == ActionPull && v.state.InProgress() {
		return "waits for the new images: " + v.node.Failing
	}
	return v.node.Failing
}

// failingLimit returns how long the calls that the turn needs may fail; 0 for no other limit than that of the state. A
// cordoned node whose pods cannot be read, or whose images cannot be pulled, does nothing of what its state waits for.
func (v *visit) failingLimit(t *turn) time.Duration {
	switch {
	case !v.own:
		return 0
	case v.state == StateRequired && v.slot:
		return beginTime
	case !v.state.InProgress() || v.restarted():
		return 0
	case t.step == nil || t.step.Action == ActionPull || t.step.Action == ActionEndPull:
		return deadTime
	default:
		return 0
	}
}

func (v *visit) decide() turn {
	n := v.node
	switch {
	case n.Pull != nil && !n.Pull.Ending && !v.pulls():
		return v.act(ActionEndPull, n.Pull, "its images are not pulled in advance any more")
	case !n.Installs:
		return v.leave()
	case n.Unreadable != "":
		return v.unreadable()
	case !v.own || !v.record.State.InProgress() && !v.state.idle():
		return v.foreign()
	case v.record.State.InProgress() && v.record.Since.After(v.now):
		return v.correctSince()
	default:
		return v.continued()
	}
}

// continued is a node with a record of this operator.
func (v *visit) continued() turn {
	if v.record.Cordoned && !v.node.Unschedulable && v.keepsGoing() {
		return v.forgetCordon()
	}
	return v.next()
}

// next returns what a node with a record does.
func (v *visit) next() turn {
	if t, acts := v.pullOther(); acts {
		return t
	}
	switch v.state {
	case StateRequired:
		return v.required()
	case StateWaitForJobs:
		return v.waitForJobs()
	case StatePodDeletion:
		return v.podDeletion()
	case StateDrain:
		return v.drain()
	case StatePodRestart:
		return v.podRestart()
	case StateValidation:
		return v.validation()
	case StateFailed:
		return v.failed()
	default:
		return v.idle()
	}
}

// pullOther returns the step that pulls the images of another target than the one that the node was cordoned for, or
// what ends the upgrade: the pull may be refused for a while, and must not delay that. It reports whether there is one.
// What the node waits for goes on while the images are pulled.
func (v *visit) pullOther() (turn, bool) {
	if !v.state.InProgress() || !v.pulls() {
		return turn{}, false
	}
	if t, ended := v.cutShort(); ended {
		return t, true
	}
	t, pulled := v.pull()
	return t, !pulled && t.step != nil
}

// wait is a turn without a step.
func (v *visit) wait(reason, message string) turn {
	return turn{progress: v.progress(reason, message, false)}
}

// hold is a turn without a step, of a node that does not go on by itself.
func (v *visit) hold(reason, message string) turn {
	return turn{progress: v.progress(reason, message, true)}
}

func (v *visit) progress(reason, message string, held bool) *Progress {
	return &Progress{
		State: v.state, Since: v.record.Since, Held: held, Reason: reason, Message: text.Truncate(message, maxMessage),
	}
}

// act is a turn with a step on a pod of the operator, or on none.
func (v *visit) act(action Action, pod *Pod, why string) turn {
	step := &Step{Action: action, Why: why}
	if pod != nil {
		step.Pods = []WorkloadPod{{Name: pod.Name, UID: pod.UID}}
	}
	return turn{step: step, progress: v.progress(stateReason(v.state), "", false)}
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
func (v *visit) by(limit time.Duration, waiting turn, expired func() turn) turn {
	if limit == 0 {
		return waiting
	}
	deadline := v.record.Since.Add(limit)
	if !v.now.Before(deadline) {
		return expired()
	}
	waiting.until = times.Earlier(waiting.until, deadline)
	return waiting
}

// restarted reports whether the node has no working driver until its new one is validated.
func (v *visit) restarted() bool {
	if v.record.Restarted {
		return true
	}
	if v.state != StatePodRestart && v.state != StateValidation {
		return false
	}
	driver := v.node.Driver
	return driver == nil || driver.Ending || driver.UID != v.record.DriverPod
}

// keepsGoing reports whether the state does not end when another client uncordons the node.
func (v *visit) keepsGoing() bool {
	return v.state == StateRequired || v.state == StateFailed || v.restarted()
}
