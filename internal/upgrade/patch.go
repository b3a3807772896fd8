package upgrade

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// enter is the patch to a state of the round. why is also the event for users.
func (v *visit) enter(state State, why string) (turn, *Patch) {
	record := v.record
	record.UID = v.node.UID
	if v.ahead > 0 {
		record.Round = v.nextRound()
	}
	if state != v.state {
		record.Since = v.now
	}
	record.State = state
	if v.node.Target != "" {
		record.Target = v.node.Target
	}
	patch := &Patch{
		State: v.label(&record), Record: &record, EndRequest: v.node.Requested, Event: text.Truncate(why, maxMessage),
	}
	return turn{
		step:     &Step{Action: ActionPatch, Patch: patch, Why: why},
		progress: v.progress(stateReason(v.state), "", false),
	}, patch
}

// nextRound is the round after that of the record, and after that of a slot that counts: with a patch to it the slot
// never counts again.
func (v *visit) nextRound() int64 { return v.record.Round + max(0, v.ahead) + 1 }

// begin is the patch with which a new round begins. The cordon of a failed round stays with the node.
func (v *visit) begin(requested bool, why string) turn {
	t, patch := v.enter(StateRequired, why)
	patch.Record = &Record{
		UID: v.node.UID, Round: v.nextRound(), State: StateRequired, Since: v.now, Target: v.node.Target,
		Requested: requested, Cordoned: v.record.Cordoned, Restarted: v.record.Restarted, BootID: v.node.BootID,
	}
	if driver := v.node.Driver; driver != nil {
		patch.Record.Driver, patch.Record.DriverPod = driver.Digest, driver.UID
	}
	patch.State = v.label(patch.Record)
	return t
}

// again is the patch with which the next round for the same target begins, after a failed one.
func (v *visit) again() turn {
	t := v.begin(v.record.Requested, "the next attempt is due")
	t.step.Patch.Record.Failures = v.record.Failures
	return t
}

// label is the label of a node with the record. Without automatic upgrades, nodes that wait for a request and those
// that are upgraded have none.
func (v *visit) label(record *Record) State {
	if v.policy.Auto || record.State == StateFailed || record.State.InProgress() {
		return record.State
	}
	if record.State == StateRequired && record.Requested {
		return record.State
	}
	return StateNone
}

// yield gives back the slot of a node that has not left StateRequired: the slot is valid for the round only. It is not
// just removed, since another manager may be about to use it; its patch then fails, as the Node has changed.
func (v *visit) yield(why string) (turn, *Patch) {
	t, patch := v.enter(StateRequired, why)
	patch.Record.Round = v.nextRound()
	patch.Record.Started = time.Time{}
	patch.State = v.label(patch.Record)
	return t, patch
}

// giveBack is the patch of a node whose slot counts though it does not wait for its upgrade to begin. Its label stays.
func (v *visit) giveBack(waiting turn) turn {
	state := StateDone
	if v.own {
		state = v.record.State
	}
	t, patch := v.enter(state, "the node does not use its slot, and gives it back")
	patch.Record.Round, patch.Record.Since, patch.Record.Target = v.nextRound(), v.record.Since, v.record.Target
	patch.State, patch.Event, patch.EndRequest = v.node.State, "", false
	if waiting.progress != nil {
		t.progress = waiting.progress
	}
	t.until = waiting.until
	return t
}

// correctSince is the patch of a node whose state was entered in the future, by its record: another client has written
// it, or a manager whose clock was ahead. The deadline of the state begins now.
func (v *visit) correctSince() turn {
	t, patch := v.enter(v.record.State, "the record has a time in the future")
	patch.Record.Since, patch.Record.Target = v.now, v.record.Target
	patch.Event, patch.EndRequest = "", false
	return t
}

// start is the patch that cordons the node and begins its upgrade. pods says which pods are on it.
func (v *visit) start(state State, pods string) turn {
	why := "the node is cordoned for its upgrade"
	if v.node.Unschedulable {
		why = "the upgrade begins; the node is cordoned already"
	}
	t, patch := v.enter(state, why+pods)
	record := patch.Record
	record.Started, record.Reason, record.Message, record.RetryAt = v.now, "", "", time.Time{}
	record.Moves = v.node.MoveTo != ""
	record.BootID = v.node.BootID
	if record.Pulled = ""; v.node.Pull != nil {
		record.Pulled = v.node.Pull.Digest
	}
	if driver := v.node.Driver; driver != nil && v.node.stale() {
		record.Driver, record.DriverPod = driver.Digest, driver.UID
	}
	if v.node.Unschedulable {
		patch.RememberCordon = !record.Cordoned
	} else {
		record.Cordoned, patch.Unschedulable = true, new(true)
	}
	patch.ReleasePool = state == StatePodRestart && v.node.MoveTo != ""
	return t
}

// end makes a patch the last one of the round: the node is uncordoned if this operator has cordoned it.
func (v *visit) end(patch *Patch) {
	patch.ForgetCordon = true
	if v.record.Cordoned {
		if v.node.Unschedulable {
			patch.Unschedulable = new(false)
		}
		if patch.Record != nil {
			patch.Record.Cordoned = false
		}
	}
}

// done is the patch to StateDone. Without automatic upgrades it removes the label, as for nodes that were never
// upgraded.
func (v *visit) done(why string) turn {
	t, patch := v.enter(StateDone, why)
	record := patch.Record
	record.Requested, record.Moves, record.Restarted = false, false, false
	record.Driver, record.DriverPod, record.Pulled, record.BootID = "", "", "", v.node.BootID
	record.clearFailure()
	v.end(patch)
	return t
}

// fail is the patch to StateFailed. A node whose old driver still works is uncordoned, and tried again later;
// one whose driver was replaced stays cordoned until the driver is validated.
func (v *visit) fail(reason, message string) turn {
	t, patch := v.enter(StateFailed, message)
	patch.Warning = true
	record := patch.Record
	record.Reason, record.Message = reason, text.Truncate(message, maxMessage)
	record.Restarted = v.restarted()
	if record.Restarted {
		return t
	}
	v.end(patch)
	if reason != v1.ReasonUpgradeUncordoned {
		v.retryLater(record)
	}
	return t
}

// retryLater counts a failure with which the node has kept its driver, and schedules the next attempt.
func (v *visit) retryLater(record *Record) {
	record.Failures = countFailure(record.Failures)
	if delay := v.policy.retryAfter(record.Failures); delay > 0 {
		record.RetryAt = v.now.Add(delay)
	}
}

// leave ends the upgrade of a node that the operator does not install the driver on any more. The record goes after the
// slot, without another Event: without a record, the slot would count again.
func (v *visit) leave() turn {
	ended := v.record.State == StateDone && v.node.State == StateNone && !v.record.Cordoned
	switch {
	case v.lost():
		v.record.Cordoned = true
	case !v.own || ended && v.granted && v.governed:
		return turn{}
	}
	t, patch := v.enter(StateDone, "the operator does not install the driver on the node any more")
	patch.State = StateNone
	if ended {
		patch.Event = ""
	}
	v.end(patch)
	if v.granted && v.governed {
		patch.Record.Round = v.nextRound()
	} else {
		patch.Record = nil
	}
	return t
}

// forgetCordon records that another client has uncordoned the node: a cordon that follows is not this operator's.
func (v *visit) forgetCordon() turn {
	t, patch := v.enter(v.state, "another client has uncordoned the node")
	patch.Record.Cordoned, patch.Record.Target = false, v.record.Target
	patch.Event, patch.EndRequest = "", false
	return t
}
