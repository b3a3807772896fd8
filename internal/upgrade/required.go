package upgrade

import (
	"cmp"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// required is a node that waits for its upgrade, with its GPUs in use.
func (v *visit) required() turn {
	n := v.node
	switch {
	case n.Requested:
		return v.request("an upgrade was requested")
	case v.reloads():
		t := v.request(v.reloading())
		t.step.Patch.Record.DriverPod = ""
		return t
	case v.record.Reason != "" && n.Target != "" && v.record.Target != n.Target:
		t, patch := v.enter(StateRequired, "the driver has another target")
		patch.Record.clearFailure()
		return t
	case n.inSync():
		return v.replaced()
	}
	if reason, message := v.parked(); reason != "" {
		return v.park(reason, message)
	}
	if v.record.Reason != "" {
		return v.pullAgain()
	}
	if n.State != v.label(&v.record) {
		t, patch := v.enter(StateRequired, "upgradePolicy.autoUpgrade has changed")
		patch.Event = ""
		return t
	}
	return v.candidate()
}

// request is the patch that makes the round one that a user has requested.
func (v *visit) request(why string) turn {
	t, patch := v.enter(StateRequired, why)
	record := patch.Record
	record.Requested = true
	record.clearFailure()
	patch.State = v.label(record)
	return t
}

// reloads reports whether a user has deleted the outdated driver pod, and the new one waits to unload the old driver.
// After a reboot no driver is loaded, unless the pod was deleted later: one that waits for as long as a driver may take
// to start was.
func (v *visit) reloads() bool {
	if !v.unloads() {
		return false
	}
	deadline := v.unloadDeadline()
	return v.node.BootID == v.record.BootID || !deadline.IsZero() && !v.now.Before(deadline)
}

// unloads reports whether the new driver pod is not ready, and waits to unload an earlier driver.
func (v *visit) unloads() bool {
	n := v.node
	return !v.record.Requested && n.inSync() && !n.Driver.Ready && n.Driver.Unloading
}

// unloadDeadline returns when the driver pod has waited for as long as a driver may take to start; zero for never.
func (v *visit) unloadDeadline() time.Time {
	if v.policy.DriverTimeout == 0 {
		return time.Time{}
	}
	return v.node.Driver.Created.Add(v.policy.DriverTimeout)
}

// starting is a node whose driver pod is the right one and not ready.
func (v *visit) starting() turn {
	waiting := v.awaitDriver()
	if v.node.Driver.Unloading {
		waiting.until = v.unloadDeadline()
	}
	return waiting
}

func (v *visit) reloading() string {
	return "the driver pod was deleted, and pod " + v.node.Driver.Name + " waits for the GPUs"
}

// replaced is a node whose driver pod is the right one. Unless a user has requested the upgrade, no pod is evicted.
func (v *visit) replaced() turn {
	n := v.node
	switch {
	case v.record.Requested && n.Driver.Unloading:
		if reason, message := v.parked(); reason != "" {
			return v.park(reason, message)
		}
		return v.candidate()
	case !n.Driver.Ready:
		return v.starting()
	case !v.record.Restarted:
		return v.done("the driver pod was replaced outside an upgrade")
	}
	waiting, validated := v.validate()
	if validated {
		return v.done("the driver pod was replaced outside an upgrade")
	}
	return waiting
}

// parked returns why the node cannot be upgraded however many slots are free; the reason is empty if it can.
func (v *visit) parked() (reason, message string) {
	n := v.node
	switch {
	case n.Skip:
		return v1.ReasonUpgradeSkipped, "the label " + labels.UpgradeSkip + " excludes the node"
	case !v.policy.Auto && !v.record.Requested:
		return v1.ReasonUpgradeManual, "autoUpgrade is false: annotate the node with " + labels.UpgradeRequested + "=true"
	case !n.KubeletReady:
		return v1.ReasonUpgradeNodeNotReady, notReady
	case v.record.Reason != "" && (v.record.RetryAt.IsZero() || v.now.Before(v.record.RetryAt)):
		return v.record.Reason, v.record.Message
	case v.policy.Paused:
		return v1.ReasonUpgradePaused, "upgradePolicy.paused is true"
	case v.slot:
		return v.beyond.reason, v.beyond.message
	}
	return "", ""
}

// park holds the node. It gives back its slot, as nothing has begun.
func (v *visit) park(reason, message string) turn {
	if v.slot {
		t, patch := v.yield("the node gives back its slot: " + message)
		patch.Event = ""
		return t
	}
	held := v.hold(reason, message)
	if v.record.Reason == reason {
		held.until = v.record.RetryAt
	}
	return held
}

// candidate is a node that may be upgraded, once it has a slot.
func (v *visit) candidate() turn {
	n := v.node
	switch {
	case n.Driver == nil || n.Driver.Ending || n.Target == "":
		return v.wait(v1.ReasonUpgradeRestarting, "the driver pod is being replaced outside an upgrade")
	case !v.slot:
		return turn{wants: true, progress: v.progress(v1.ReasonUpgradeQueued, "", false)}
	case v.pulls():
		if t, pulled := v.pull(); !pulled {
			return t
		}
	}
	if n.Workload == nil {
		return v.keep("the pods on the node are not read yet")
	}
	switch {
	case v.policy.WaitsForJobs && len(n.Workload.Jobs) > 0:
		return v.start(StateWaitForJobs, "; jobs run")
	case len(n.Workload.Users) > 0:
		return v.start(StatePodDeletion, "")
	default:
		return v.start(StatePodRestart, "; no pod uses the GPUs")
	}
}

// pulls reports whether the images of the new driver have to be on the node before its upgrade goes on.
func (v *visit) pulls() bool {
	switch {
	case !v.own || !v.policy.PullImages || !v.node.outdated():
		return false
	case v.state == StateRequired:
		return v.slot && v.record.Reason == ""
	default:
		return v.pullsOther()
	}
}

// pullsOther reports whether the node, whose old driver still works, has another target than the one whose images were
// pulled before it was cordoned. The DaemonSet of a driver pool is created once the node has moved there.
func (v *visit) pullsOther() bool {
	switch v.state {
	case StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart:
		moves := v.node.MoveTo != "" || v.record.Moves
		return v.node.KubeletReady && !moves && !v.restarted() && v.record.Pulled != v.node.Target
	default:
		return false
	}
}

// pull pulls the images of the new driver, and reports whether they are there.
func (v *visit) pull() (turn, bool) {
	n := v.node
	switch {
	case n.Pull == nil:
		why := "the images of the new driver are pulled before the node is cordoned"
		if v.state.InProgress() {
			why = "the driver has another target, whose images are pulled before it is replaced"
		}
		return v.act(ActionPull, nil, why), false
	case n.Pull.Ending:
		return v.pullEnds(), false
	case n.MoveTo == "" && n.Pull.Digest != n.Target:
		return v.act(ActionEndPull, n.Pull, "the driver has another target"), false
	case n.Pull.Ready:
		return turn{}, true
	case n.Pull.Failed:
		return v.pullFailed(n.Pull.Message), false
	}
	waiting := v.keep("pull pod " + n.Pull.Name + " pulls the images of the new driver")
	if v.policy.PullTimeout == 0 {
		return waiting, false
	}
	waiting.until = n.Pull.Created.Add(v.policy.PullTimeout)
	if !v.now.Before(waiting.until) {
		return v.pullFailed(cmp.Or(n.Pull.Message, "the images are not pulled in time")), false
	}
	return waiting, false
}

// pullEnds is a node whose pull pod for another target is being deleted. A finalizer may keep it for good. While the
// node does not report, no kubelet can end it; but a node that boots again and again must not hold up others.
func (v *visit) pullEnds() turn {
	pull := v.node.Pull
	waiting := v.keep("pull pod " + pull.Name + " is ending")
	if pull.EndsAt.IsZero() {
		return waiting
	}
	began := times.Later(pull.EndsAt, v.node.ReadySince)
	waiting.until = times.Earlier(began.Add(beginTime), pull.EndsAt.Add(beginTime+deadTime))
	if !v.now.Before(waiting.until) {
		return v.pullFailed("pull pod " + pull.Name + " does not end: remove its finalizers")
	}
	return waiting
}

// keep is a turn without a step, of a node that prepares its upgrade and keeps its slot meanwhile.
func (v *visit) keep(message string) turn {
	t := v.wait(v1.ReasonUpgradePulling, message)
	t.keeps = true
	return t
}

// pullAgain is the patch of a node whose failed pull is due again. Only without a failure in its record it pulls, so
// the pull pod of the failed round is deleted before.
func (v *visit) pullAgain() turn {
	t, patch := v.enter(StateRequired, "the next attempt is due")
	patch.Record.Reason, patch.Record.Message, patch.Record.RetryAt = "", "", time.Time{}
	patch.Event = ""
	return t
}

// pullFailed ends the round: the old driver works.
func (v *visit) pullFailed(message string) turn {
	why := "the images of the new driver cannot be pulled: " + message
	if v.state.InProgress() {
		return v.fail(v1.ReasonUpgradePullFailed, why)
	}
	return v.notBegun(v1.ReasonUpgradePullFailed, message, why)
}

// notBegun ends the round of a node that cannot begin. Nothing was evicted, and the next round begins later.
func (v *visit) notBegun(reason, message, why string) turn {
	t, patch := v.yield(why)
	patch.Warning = true
	patch.Record.Reason, patch.Record.Message = reason, text.Truncate(message, maxMessage)
	v.retryLater(patch.Record)
	return t
}
