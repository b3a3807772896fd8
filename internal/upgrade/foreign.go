package upgrade

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// foreign is a node without a record, or with an idle one and another state in the label: another operator has left it.
// An upgrade of NVIDIA's operator is continued.
func (p *driverPlan) foreign() turn {
	switch p.state {
	case StateNone, StateRequired, StateDone, StateFailed:
		return p.idle()
	case StateCordon, StateWaitForJobs, StatePodDeletion, StateDrain:
		return p.adopt(StatePodDeletion)
	case StatePodRestart, StateValidation, StateUncordon:
		return p.adopt(p.stateOf(StatePodRestart))
	default:
		return p.unknown()
	}
}

// unknown is a node whose label has an unknown state: nothing is done. Only a cordon of this operator is undone if the
// node does not need it.
func (p *driverPlan) unknown() turn {
	held := p.hold(v1.ReasonUpgradeUnknownState, "label "+labels.UpgradeState+"="+string(p.state)+" is unknown")
	if !p.claimsCordon() || p.record.Restarted {
		return held
	}
	t := p.giveBack(held)
	p.end(t.step.Patch)
	return t
}

// stateOf is the state in which an upgrade is continued: the given one if its driver may have to be replaced still.
func (p *driverPlan) stateOf(stale State) State {
	driver := p.node.Driver
	if driver != nil && (p.node.Target == "" || p.node.stale()) {
		return stale
	}
	return StateValidation
}

// lost reports whether another client has removed the record of an upgrade that has cordoned the node: it has a slot
// and the label, and the annotation by which a cordon of others is remembered is absent. Without the label the cordon
// may be a user's: leave removes the label and the record, and such a cordon stays.
func (p *driverPlan) lost() bool {
	return p.slot && !p.own && p.state.continues() && p.node.Unschedulable && !p.node.InitiallyCordoned
}

// unreadable reports whether neither the record nor the label of the node can be read: a later release may have written
// both, and its record has whose the cordon is. They stay, and nothing is done.
func (n *Node) unreadable() bool {
	return n.Unreadable != "" && !n.State.idle() && !n.State.continues()
}

// unreadable is a node whose record cannot be decoded. It is replaced, and the node continues from its label as without
// a record, unless the label cannot be read either.
func (p *driverPlan) unreadable() turn {
	t := p.foreign()
	if t.step == nil && p.state.idle() {
		t = p.giveBack(t)
	}
	if t.step != nil && t.step.Patch != nil {
		patch := t.step.Patch
		patch.Warning, patch.Replaces = true, true
		patch.Event = text.Truncate("annotation "+labels.UpgradeRecord+" is replaced: "+p.node.Unreadable, maxMessage)
	}
	return t
}

// adopt is the patch that continues the upgrade of another operator. That operator cordons in StateCordon, and has
// recorded in an annotation whether the node was cordoned before.
func (p *driverPlan) adopt(state State) turn {
	n := p.node
	t, patch := p.enter(state, "an upgrade by another operator is continued")
	patch.Record = &Record{
		UID: n.UID, Round: p.nextRound(), State: state, Since: p.now, Started: p.now, Target: n.Target,
		Cordoned: !n.InitiallyCordoned && (n.Unschedulable || p.state == StateCordon), BootID: n.BootID,
	}
	patch.State = state
	if n.Driver != nil && n.stale() {
		patch.Record.Driver, patch.Record.DriverPod = n.Driver.Digest, n.Driver.UID
	}
	if p.state == StateCordon && !n.Unschedulable {
		patch.Unschedulable = new(true)
	}
	return t
}
