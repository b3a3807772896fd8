package upgrade

import (
	"cmp"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// required is a node that waits for its upgrade, with its GPUs in use.
func (p *driverPlan) required() turn {
	n := p.node
	switch {
	case n.Requested:
		return p.request("an upgrade was requested")
	case p.reloads():
		t := p.request(p.reloading())
		t.step.Patch.Record.DriverPod = ""
		return t
	case p.record.Reason != "" && n.Target != "" && p.record.Target != n.Target:
		t, patch := p.enter(StateRequired, "the driver has another target")
		patch.Record.clearFailure()
		return t
	case n.inSync():
		return p.replaced()
	}
	if reason, message := p.parked(); reason != "" {
		return p.park(reason, message)
	}
	if p.record.Reason != "" {
		return p.pullAgain()
	}
	if n.State != p.label(&p.record) {
		t, patch := p.enter(StateRequired, "upgradePolicy.autoUpgrade has changed")
		patch.Event = ""
		return t
	}
	return p.candidate()
}

// request is the patch that makes the round one that a user has requested.
func (p *driverPlan) request(why string) turn {
	t, patch := p.enter(StateRequired, why)
	record := patch.Record
	record.Requested = true
	record.clearFailure()
	patch.State = p.label(record)
	return t
}

// reloads reports whether a user has deleted the outdated driver pod, and the new one waits to unload the old driver.
// After a reboot no driver is loaded, unless the pod was deleted later: one that waits for as long as a driver may take
// to start was.
func (p *driverPlan) reloads() bool {
	if !p.unloads() {
		return false
	}
	deadline := p.unloadDeadline()
	return p.node.BootID == p.record.BootID || !deadline.IsZero() && !p.now.Before(deadline)
}

// unloads reports whether the new driver pod is not ready, and waits to unload an earlier driver.
func (p *driverPlan) unloads() bool {
	n := p.node
	return !p.record.Requested && n.inSync() && !n.Driver.Ready && n.Driver.Unloading
}

// unloadDeadline returns when the driver pod has waited for as long as a driver may take to start; zero for never.
func (p *driverPlan) unloadDeadline() time.Time {
	if p.policy.DriverTimeout == 0 {
		return time.Time{}
	}
	return p.node.Driver.Created.Add(p.policy.DriverTimeout)
}

// starting is a node whose driver pod is the right one and not ready.
func (p *driverPlan) starting() turn {
	waiting := p.awaitDriver()
	if p.node.Driver.Unloading {
		waiting.until = p.unloadDeadline()
	}
	return waiting
}

func (p *driverPlan) reloading() string {
	return "the driver pod was deleted, and pod " + p.node.Driver.Name + " waits for the GPUs"
}

// replaced is a node whose driver pod is the right one. Unless a user has requested the upgrade, no pod is evicted.
func (p *driverPlan) replaced() turn {
	n := p.node
	switch {
	case p.record.Requested && n.Driver.Unloading:
		if reason, message := p.parked(); reason != "" {
			return p.park(reason, message)
		}
		return p.candidate()
	case !n.Driver.Ready:
		return p.starting()
	case !p.record.Restarted:
		return p.done("the driver pod was replaced outside an upgrade")
	}
	waiting, validated := p.validate()
	if validated {
		return p.done("the driver pod was replaced outside an upgrade")
	}
	return waiting
}

// parked returns why the node cannot be upgraded however many slots are free; the reason is empty if it can.
func (p *driverPlan) parked() (reason, message string) {
	n := p.node
	switch {
	case n.Skip:
		return v1.ReasonUpgradeSkipped, "the label " + labels.UpgradeSkip + " excludes the node"
	case !p.policy.Auto && !p.record.Requested:
		return v1.ReasonUpgradeManual, "autoUpgrade is false: annotate the node with " + labels.UpgradeRequested + "=true"
	case !n.KubeletReady:
		return v1.ReasonUpgradeNodeNotReady, drain.NotReady
	case p.record.Reason != "" && (p.record.RetryAt.IsZero() || p.now.Before(p.record.RetryAt)):
		return p.record.Reason, p.record.Message
	case p.policy.Paused:
		return v1.ReasonUpgradePaused, "upgradePolicy.paused is true"
	case p.slot:
		return p.beyond.reason, p.beyond.message
	}
	return "", ""
}

// park holds the node. It gives back its slot, as nothing has begun.
func (p *driverPlan) park(reason, message string) turn {
	if p.slot {
		t, patch := p.yield("the node gives back its slot: " + message)
		patch.Event = ""
		return t
	}
	held := p.hold(reason, message)
	if p.record.Reason == reason {
		held.until = p.record.RetryAt
	}
	return held
}

// candidate is a node that may be upgraded, once it has a slot.
func (p *driverPlan) candidate() turn {
	n := p.node
	switch {
	case n.Driver == nil || n.Driver.Ending || n.Target == "":
		return p.wait(v1.ReasonUpgradeRestarting, "the driver pod is being replaced outside an upgrade")
	case !p.slot:
		return turn{wants: true, progress: p.progress(v1.ReasonUpgradeQueued, "", false)}
	case p.pulls():
		if t, pulled := p.pull(); !pulled {
			return t
		}
	}
	if n.Workload == nil {
		return p.keep("the pods on the node are not read yet")
	}
	switch {
	case p.drain.First() == drain.Jobs:
		return p.start(StateWaitForJobs, "; jobs run")
	case len(n.Workload.Users) > 0:
		return p.start(StatePodDeletion, "")
	default:
		return p.start(StatePodRestart, "; no pod uses the GPUs")
	}
}

// pulls reports whether the images of the new driver have to be on the node before its upgrade goes on.
func (p *driverPlan) pulls() bool {
	switch {
	case !p.own || !p.policy.PullImages || !p.node.outdated():
		return false
	case p.state == StateRequired:
		return p.slot && p.record.Reason == ""
	default:
		return p.pullsOther()
	}
}

// pullsOther reports whether the node, whose old driver still works, has another target than the one whose images were
// pulled before it was cordoned. The DaemonSet of a driver pool is created once the node has moved there.
func (p *driverPlan) pullsOther() bool {
	switch p.state {
	case StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart:
		moves := p.node.MoveTo != "" || p.record.Moves
		return p.node.KubeletReady && !moves && !p.restarted() && p.record.Pulled != p.node.Target
	default:
		return false
	}
}

// pull pulls the images of the new driver, and reports whether they are there.
func (p *driverPlan) pull() (turn, bool) {
	n := p.node
	switch {
	case n.Pull == nil:
		why := "the images of the new driver are pulled before the node is cordoned"
		if p.state.InProgress() {
			why = "the driver has another target, whose images are pulled before it is replaced"
		}
		return p.act(ActionPull, nil, why), false
	case n.Pull.Ending:
		return p.pullEnds(), false
	case n.MoveTo == "" && n.Pull.Digest != n.Target:
		return p.act(ActionEndPull, n.Pull, "the driver has another target"), false
	case n.Pull.Ready:
		return turn{}, true
	case n.Pull.Failed:
		return p.pullFailed(n.Pull.Message), false
	}
	waiting := p.keep("pull pod " + n.Pull.Name + " pulls the images of the new driver")
	if p.policy.PullTimeout == 0 {
		return waiting, false
	}
	waiting.until = n.Pull.Created.Add(p.policy.PullTimeout)
	if !p.now.Before(waiting.until) {
		return p.pullFailed(cmp.Or(n.Pull.Message, "the images are not pulled in time")), false
	}
	return waiting, false
}

// pullEnds is a node whose pull pod for another target is being deleted. A finalizer may keep it for good. While the
// node does not report, no kubelet can end it; but a node that boots again and again must not hold up others.
func (p *driverPlan) pullEnds() turn {
	pull := p.node.Pull
	waiting := p.keep("pull pod " + pull.Name + " is ending")
	if pull.EndsAt.IsZero() {
		return waiting
	}
	began := times.Later(pull.EndsAt, p.node.ReadySince)
	waiting.until = times.Earlier(began.Add(beginTime), pull.EndsAt.Add(beginTime+drain.DeadTime))
	if !p.now.Before(waiting.until) {
		return p.pullFailed("pull pod " + pull.Name + " does not end: remove its finalizers")
	}
	return waiting
}

// keep is a turn without a step, of a node that prepares its upgrade and keeps its slot meanwhile.
func (p *driverPlan) keep(message string) turn {
	t := p.wait(v1.ReasonUpgradePulling, message)
	t.keeps = true
	return t
}

// pullAgain is the patch of a node whose failed pull is due again. Only without a failure in its record it pulls, so
// the pull pod of the failed round is deleted before.
func (p *driverPlan) pullAgain() turn {
	t, patch := p.enter(StateRequired, "the next attempt is due")
	patch.Record.Reason, patch.Record.Message, patch.Record.RetryAt = "", "", time.Time{}
	patch.Event = ""
	return t
}

// pullFailed ends the round: the old driver works.
func (p *driverPlan) pullFailed(message string) turn {
	why := "the images of the new driver cannot be pulled: " + message
	if p.state.InProgress() {
		return p.fail(v1.ReasonUpgradePullFailed, why)
	}
	return p.notBegun(v1.ReasonUpgradePullFailed, message, why)
}

// notBegun ends the round of a node that cannot begin. Nothing was evicted, and the next round begins later.
func (p *driverPlan) notBegun(reason, message, why string) turn {
	t, patch := p.yield(why)
	patch.Warning = true
	record := patch.Record
	record.Reason, record.Message = reason, text.Truncate(message, maxMessage)
	p.policy.countFailure(&record.Failures, &record.RetryAt, p.now)
	return t
}
