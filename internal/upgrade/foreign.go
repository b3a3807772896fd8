package upgrade

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// foreign is a node without a record, or with an idle one and another state in the label: another operator has left it.
// An upgrade of NVIDIA's operator is continued.
func (v *visit) foreign() turn {
	switch v.state {
	case StateNone, StateRequired, StateDone, StateFailed:
		return v.idle()
	case StateCordon, StateWaitForJobs, StatePodDeletion, StateDrain:
		return v.adopt(StatePodDeletion)
	case StatePodRestart, StateValidation, StateUncordon:
		return v.adopt(v.stateOf(StatePodRestart))
	default:
		return v.unknown()
	}
}

// unknown is a node whose label has an unknown state: nothing is done. Only a cordon of this operator is undone if the
// node does not need it.
func (v *visit) unknown() turn {
	held := v.hold(v1.ReasonUpgradeUnknownState, "label "+labels.UpgradeState+"="+string(v.state)+" is unknown")
	if !v.claimsCordon() || v.record.Restarted {
		return held
	}
	t := v.giveBack(held)
	v.end(t.step.Patch)
	return t
}

// stateOf is the state in which an upgrade is continued: the given one if its driver may have to be replaced still.
func (v *visit) stateOf(stale State) State {
	driver := v.node.Driver
	if driver != nil && (v.node.Target == "" || v.node.stale()) {
		return stale
	}
	return StateValidation
}

// lost reports whether another client has removed the record of an upgrade that has cordoned the node: it has a slot
// and the label, and the annotation by which a cordon of others is remembered is absent. Without the label the cordon
// may be a user's: leave removes the label and the record, and such a cordon stays.
func (v *visit) lost() bool {
	return v.slot && !v.own && v.state.continues() && v.node.Unschedulable && !v.node.InitiallyCordoned
}

// unreadable reports whether neither the record nor the label of the node can be read: a later release may have written
// both, and its record has whose the cordon is. They stay, and nothing is done.
func (n *Node) unreadable() bool {
	return n.Unreadable != "" && !n.State.idle() && !n.State.continues()
}

// unreadable is a node whose record cannot be decoded. It is replaced, and the node continues from its label as without
// a record, unless the label cannot be read either.
func (v *visit) unreadable() turn {
	t := v.foreign()
	if t.step == nil && v.state.idle() {
		t = v.giveBack(t)
	}
	if t.step != nil && t.step.Patch != nil {
		patch := t.step.Patch
		patch.Warning, patch.Replaces = true, true
		patch.Event = text.Truncate("annotation "+labels.UpgradeRecord+" is replaced: "+v.node.Unreadable, maxMessage)
	}
	return t
}

// adopt is the patch that continues the upgrade of another operator. That operator cordons in StateCordon, and has
// recorded in an annotation whether the node was cordoned before.
func (v *visit) adopt(state State) turn {
	n := v.node
	t, patch := v.enter(state, "an upgrade by another operator is continued")
	patch.Record = &Record{
		UID: n.UID, Round: v.nextRound(), State: state, Since: v.now, Started: v.now, Target: n.Target,
		Cordoned: !n.InitiallyCordoned && (n.Unschedulable || v.state == StateCordon), BootID: n.BootID,
	}
	patch.State = state
	if n.Driver != nil && n.stale() {
		patch.Record.Driver, patch.Record.DriverPod = n.Driver.Digest, n.Driver.UID
	}
	if v.state == StateCordon && !n.Unschedulable {
		patch.Unschedulable = new(true)
	}
	return t
}
