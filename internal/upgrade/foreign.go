package upgrade

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
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
		driver := v.node.Driver
		if driver != nil && (v.node.Target == "" || v.node.stale()) {
			return v.adopt(StatePodRestart)
		}
		return v.adopt(StateValidation)
	default:
		return v.hold(v1.ReasonUpgradeUnknownState, "label "+labels.UpgradeState+"="+string(v.state)+" is unknown")
	}
}

// adopt is the patch that continues the upgrade of another operator. That operator cordons in StateCordon, and has
// recorded in an annotation whether the node was cordoned before.
func (v *visit) adopt(state State) turn {
	n := v.node
	t, patch := v.enter(state, "an upgrade by another operator is continued")
	patch.Record = &Record{
		UID: n.UID, Round: v.record.Round + 1, State: state, Since: v.now, Started: v.now, Target: n.Target,
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
