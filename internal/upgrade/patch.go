package upgrade

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// enter is the patch to a state of the round. why is also the event for users.
func (p *driverPlan) enter(state State, why string) (turn, *Patch) {
	record := p.record
	record.UID = p.node.UID
	if p.ahead > 0 {
		record.Round = p.nextRound()
	}
	if state != p.state {
		record.Since = p.now
	}
	record.State = state
	if p.node.Target != "" {
		record.Target = p.node.Target
	}
	patch := &Patch{
		State: p.label(&record), Record: &record, EndRequest: p.node.Requested, Event: text.Truncate(why, maxMessage),
	}
	return turn{
		step:     &Step{Action: ActionPatch, Patch: patch, Why: why},
		progress: p.progress(stateReason(p.state), "", false),
	}, patch
}

// nextRound is the round after that of the record, and after that of a slot that counts: with a patch to it the slot
// never counts again.
func (p *driverPlan) nextRound() int64 { return p.record.Round + max(0, p.ahead) + 1 }

// begin is the patch with which a new round begins. The cordon of a failed round stays with the node.
func (p *driverPlan) begin(requested bool, why string) turn {
	t, patch := p.enter(StateRequired, why)
	patch.Record = &Record{
		UID: p.node.UID, Round: p.nextRound(), State: StateRequired, Since: p.now, Target: p.node.Target,
		Requested: requested, Cordoned: p.record.Cordoned, Restarted: p.record.Restarted, BootID: p.node.BootID,
	}
	if driver := p.node.Driver; driver != nil {
		patch.Record.Driver, patch.Record.DriverPod = driver.Digest, driver.UID
	}
	patch.State = p.label(patch.Record)
	return t
}

// again is the patch with which the next round for the same target begins, after a failed one.
func (p *driverPlan) again() turn {
	t := p.begin(p.record.Requested, "the next attempt is due")
	t.step.Patch.Record.Failures = p.record.Failures
	return t
}

// label is the label of a node with the record. Without automatic upgrades, nodes that wait for a request and those
// that are upgraded have none.
func (p *driverPlan) label(record *Record) State {
	if p.policy.Auto || record.State == StateFailed || record.State.InProgress() {
		return record.State
	}
	if record.State == StateRequired && record.Requested {
		return record.State
	}
	return StateNone
}

// yield gives back the slot of a node that has not left StateRequired: the slot is valid for the round only. It is not
// just removed, since another manager may be about to use it; its patch then fails, as the Node has changed.
func (p *driverPlan) yield(why string) (turn, *Patch) {
	t, patch := p.enter(StateRequired, why)
	patch.Record.Round = p.nextRound()
	patch.Record.Started = time.Time{}
	patch.State = p.label(patch.Record)
	return t, patch
}

// giveBack is the patch of a node whose slot counts though it does not wait for its upgrade to begin. Its label stays.
func (p *driverPlan) giveBack(waiting turn) turn {
	state := StateDone
	if p.own {
		state = p.record.State
	}
	t, patch := p.enter(state, "the node does not use its slot, and gives it back")
	patch.Record.Round, patch.Record.Since, patch.Record.Target = p.nextRound(), p.record.Since, p.record.Target
	patch.State, patch.Event, patch.EndRequest = p.node.State, "", false
	if waiting.progress != nil {
		t.progress = waiting.progress
	}
	t.until = waiting.until
	return t
}

// correctSince is the patch of a node whose state was entered in the future, by its record: another client has written
// it, or a manager whose clock was ahead. The deadline of the state begins now.
func (p *driverPlan) correctSince() turn {
	t, patch := p.enter(p.record.State, "the record has a time in the future")
	patch.Record.Since, patch.Record.Target = p.now, p.record.Target
	patch.Event, patch.EndRequest = "", false
	return t
}

// start is the patch that cordons the node and begins its upgrade. pods says which pods are on it.
func (p *driverPlan) start(state State, pods string) turn {
	why := "the node is cordoned for its upgrade"
	if p.node.Unschedulable {
		why = "the upgrade begins; the node is cordoned already"
	}
	t, patch := p.enter(state, why+pods)
	record := patch.Record
	record.Started, record.Reason, record.Message, record.RetryAt = p.now, "", "", time.Time{}
	record.Moves = p.node.MoveTo != ""
	record.BootID = p.node.BootID
	if record.Pulled = ""; p.node.Pull != nil {
		record.Pulled = p.node.Pull.Digest
	}
	if driver := p.node.Driver; driver != nil && p.node.stale() {
		record.Driver, record.DriverPod = driver.Digest, driver.UID
	}
	if p.node.Unschedulable {
		patch.RememberCordon = !record.Cordoned
	} else {
		record.Cordoned, patch.Unschedulable = true, new(true)
	}
	patch.ReleasePool = state == StatePodRestart && p.node.MoveTo != ""
	return t
}

// end makes a patch the last one of the round: the node is uncordoned if this operator has cordoned it.
func (p *driverPlan) end(patch *Patch) {
	patch.ForgetCordon = true
	if p.record.Cordoned {
		if p.node.Unschedulable {
			patch.Unschedulable = new(false)
		}
		if patch.Record != nil {
			patch.Record.Cordoned = false
		}
	}
}

// done is the patch to StateDone. Without automatic upgrades it removes the label, as for nodes that were never
// upgraded.
func (p *driverPlan) done(why string) turn {
	t, patch := p.enter(StateDone, why)
	record := patch.Record
	record.Requested, record.Moves, record.Restarted = false, false, false
	record.Driver, record.DriverPod, record.Pulled, record.BootID = "", "", "", p.node.BootID
	record.clearFailure()
	p.end(patch)
	return t
}

// fail is the patch to StateFailed. A node whose old driver still works is uncordoned, and tried again later;
// one whose driver was replaced stays cordoned until the driver is validated.
func (p *driverPlan) fail(reason, message string) turn {
	t, patch := p.enter(StateFailed, message)
	patch.Warning = true
	record := patch.Record
	record.Reason, record.Message = reason, text.Truncate(message, maxMessage)
	record.Restarted = p.restarted()
	if record.Restarted {
		return t
	}
	p.end(patch)
	if reason != v1.ReasonUpgradeUncordoned {
		p.policy.countFailure(&record.Failures, &record.RetryAt, p.now)
	}
	return t
}

// leave ends the upgrade of a node that the operator does not install the driver on any more. The record goes after the
// slot, without another Event: without a record, the slot would count again.
func (p *driverPlan) leave() turn {
	ended := p.record.State == StateDone && p.node.State == StateNone && !p.record.Cordoned
	switch {
	case p.lost():
		p.record.Cordoned = true
	case !p.own || ended && p.granted && p.governed:
		return turn{}
	}
	t, patch := p.enter(StateDone, "the operator does not install the driver on the node any more")
	patch.State = StateNone
	if ended {
		patch.Event = ""
	}
	p.end(patch)
	if p.granted && p.governed {
		patch.Record.Round = p.nextRound()
	} else {
		patch.Record = nil
	}
	return t
}

// forgetCordon records that another client has uncordoned the node: a cordon that follows is not this operator's.
func (p *driverPlan) forgetCordon() turn {
	t, patch := p.enter(p.state, "another client has uncordoned the node")
	patch.Record.Cordoned, patch.Record.Target = false, p.record.Target
	patch.Event, patch.EndRequest = "", false
	return t
}
