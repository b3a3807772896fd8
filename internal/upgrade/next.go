package upgrade

import (
	"cmp"
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// idle is a node whose driver was up to date when it was last looked at.
func (p *driverPlan) idle() turn {
	n := p.node
	switch {
	case n.Target == "" || !p.governed:
		return turn{}
	case n.Requested:
		return p.begin(true, "an upgrade was requested")
	case n.outdated():
		return p.begin(false, "the driver is outdated")
	default:
		return p.upToDate()
	}
}

// upToDate is an idle node whose driver is not outdated.
func (p *driverPlan) upToDate() turn {
	n := p.node
	switch ready := n.inSync() && n.Driver.Ready; {
	case ready && p.claimsCordon():
		// Another client has written the state: this operator uncordons in the patch to StateDone.
		return p.recover()
	case p.record.Target != "" && p.record.Target != n.Target && p.unloads():
		return p.unloading()
	case ready && n.State != StateNone && n.State != StateDone:
		return p.done("the driver is up to date")
	}
	return turn{}
}

// unloading is an idle node whose driver pod was deleted before the planner saw that it was outdated.
func (p *driverPlan) unloading() turn {
	if !p.reloads() {
		return turn{until: p.unloadDeadline()}
	}
	t := p.begin(true, p.reloading())
	t.step.Patch.Record.DriverPod = ""
	return t
}

// waitForJobs is a cordoned node on which jobs still run.
func (p *driverPlan) waitForJobs() turn {
	if t, ended := p.cutShort(); ended {
		return t
	}
	switch next := p.drain.Next(drain.Jobs); {
	case next.Done && p.drain.Idle():
		return p.restart("no job runs any more; no pod uses the GPUs")
	case next.Done || next.Passed != "":
		t, _ := p.enter(StatePodDeletion, cmp.Or(next.Passed, "no job runs any more"))
		return t
	default:
		return p.await(next)
	}
}

// restart is the patch with which the driver pod may be replaced.
func (p *driverPlan) restart(why string) turn {
	t, patch := p.enter(StatePodRestart, why)
	patch.ReleasePool = p.node.MoveTo != ""
	patch.Record.Moves = p.record.Moves || patch.ReleasePool
	return t
}

// evict is a cordoned node whose GPU users are evicted, or all pods that a drain evicts. What ends it is that no pod
// uses the GPUs.
func (p *driverPlan) evict(step drain.Step) turn {
	if t, ended := p.cutShort(); ended {
		return t
	}
	next := p.drain.Next(step)
	waiting, why := p.await(next), next.Passed+": "+next.Message
	switch {
	case next.Done:
		return p.restart("no pod uses the GPUs any more")
	case next.Passed == "":
		return waiting
	case p.drain.IsLast(step):
		return p.fail(waiting.progress.Reason, why)
	}
	t, _ := p.enter(StateDrain, why)
	return t
}

// cutShort returns what ends the upgrade of a node whose driver was not replaced yet, or lets it go on to the driver.
func (p *driverPlan) cutShort() (turn, bool) {
	n := p.node
	switch dead := p.drain.Dead(); {
	case !n.Unschedulable:
		return p.fail(v1.ReasonUpgradeUncordoned, "another client has uncordoned the node"), true
	case n.Skip:
		t, patch := p.yield("the node is excluded by a label")
		if !p.record.Restarted {
			p.end(patch)
		}
		return t, true
	case n.inSync() && n.Driver.Ready && n.Driver.UID == p.record.DriverPod && !p.record.Restarted:
		return p.done("the driver is up to date again"), true
	case n.inSync() && !n.Driver.Unloading && n.Driver.UID != p.record.DriverPod:
		return p.restart(fmt.Sprintf("driver pod %s was replaced outside the upgrade", n.Driver.Name)), true
	case dead != "":
		return p.fail(v1.ReasonUpgradeNodeNotReady, dead), true
	}
	return turn{}, false
}

// podRestart is a cordoned node whose driver pod is replaced.
func (p *driverPlan) podRestart() turn {
	n := p.node
	if n.Target != "" && p.record.Target != n.Target {
		t, patch := p.enter(StatePodRestart, "the driver has another target")
		patch.Record.Since = p.now
		return t
	}
	if n.KubeletReady && n.inSync() && n.Driver.Ready {
		return p.driverReady()
	}
	if !p.restarted() {
		if t, ended := p.cutShort(); ended {
			return t
		}
	}
	waiting := p.replaceDriver()
	switch {
	case waiting.step != nil && waiting.step.Action == ActionPatch:
		return waiting
	case waiting.keeps && !waiting.until.IsZero():
		// The images are pulled, which has its own limit.
		return waiting
	}
	return p.by(p.policy.DriverTimeout, waiting, func() turn {
		why := cmp.Or(p.node.Failing, waiting.progress.Message)
		return p.fail(waiting.progress.Reason, "the driver is not ready in time: "+why)
	})
}

// driverReady is a node in StatePodRestart whose driver pod is the right one, and ready.
func (p *driverPlan) driverReady() turn {
	if !p.restarted() {
		return p.done("the driver is up to date again")
	}
	if _, validated := p.validate(); validated {
		return p.done("the new driver is validated")
	}
	t, patch := p.enter(StateValidation, "the new driver is ready")
	patch.Record.Restarted = true
	return t
}

// replaceDriver waits until the right driver pod is ready, and deletes another one once no pod uses the GPUs.
func (p *driverPlan) replaceDriver() turn {
	n := p.node
	switch {
	case !n.KubeletReady:
		return p.await(p.drain.Left(drain.Users))
	case n.Target == "" || n.Driver == nil:
		return p.wait(v1.ReasonUpgradeRestarting, "the new driver pod is not created yet")
	case n.Driver.Ending:
		return p.wait(v1.ReasonUpgradeRestarting, "driver pod "+n.Driver.Name+" is ending")
	case !n.stale() && !n.Driver.Unloading:
		return p.awaitDriver()
	case !n.Unschedulable:
		return p.fail(v1.ReasonUpgradeUncordoned, "another client has uncordoned the node")
	}
	switch left := p.drain.Left(drain.Users); {
	case !left.Done:
		return p.await(left)
	case !n.stale():
		return p.awaitDriver()
	case n.MoveTo != "":
		return p.restart("the node moves to driver pool " + n.MoveTo)
	default:
		return p.deleteDriver()
	}
}

// deleteDriver deletes the driver pod, once the images of the new one are there.
func (p *driverPlan) deleteDriver() turn {
	if p.pulls() {
		if t, pulled := p.pull(); !pulled {
			return t
		}
		return p.pulledOther()
	}
	return p.act(ActionDeleteDriver, p.node.Driver, "no pod uses the GPUs, so the driver can be replaced")
}

// pulledOther is the patch of a node on which the images of another target are, that it got after it was cordoned. The
// time that the driver may take begins now.
func (p *driverPlan) pulledOther() turn {
	t, patch := p.enter(StatePodRestart, "the images of the driver's other target are pulled")
	patch.Record.Pulled, patch.Record.Since = p.node.Target, p.now
	patch.Event = ""
	return t
}

// awaitDriver waits for the driver pod, with its own reason.
func (p *driverPlan) awaitDriver() turn {
	driver := p.node.Driver
	if driver.Reason == "" {
		return p.wait(v1.ReasonUpgradeRestarting, "driver pod "+driver.Name+" starts")
	}
	return turn{progress: p.progress(driver.Reason, driver.Message, driver.Failed)}
}

// validation is a cordoned node with the new driver, which the validator checks.
func (p *driverPlan) validation() turn {
	n := p.node
	stale := n.Driver != nil && !n.Driver.Ending && n.Target != "" && n.stale()
	if stale || n.Target != "" && p.record.Target != n.Target {
		t, patch := p.enter(StatePodRestart, "the driver has another target")
		patch.Record.Restarted = true
		return t
	}
	waiting, validated := p.validate()
	if validated {
		return p.done("the new driver is validated")
	}
	return p.by(p.policy.ValidationTimeout, waiting, func() turn {
		return p.fail(waiting.progress.Reason, "the driver is not validated in time: "+waiting.progress.Message)
	})
}

// validate reports whether the validator has passed with the driver pod that runs now, and what the node does until
// then. Pods that are older than the driver pod work with the old driver, or have checked it, so they are deleted.
// Where k8s-driver-manager has replaced the modules, there are none.
func (p *driverPlan) validate() (turn, bool) {
	n := p.node
	switch {
	case !n.KubeletReady:
		return p.await(p.drain.Left(drain.Users)), false
	case !n.inSync():
		return p.wait(v1.ReasonUpgradeRestarting, "the driver pod is being replaced"), false
	case !n.Driver.Ready:
		return p.awaitDriver(), false
	case len(n.olderThanDriver()) > 0:
		return p.deleteDependants(), false
	case !n.ValidatorWanted:
		return turn{}, true
	case n.Validator == nil:
		why := cmp.Or(n.ValidatorPaused, "the node has no validator pod yet")
		return p.wait(v1.ReasonUpgradeValidating, why), false
	case n.Validator.Ending:
		return p.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" is ending"), false
	case !n.Validator.Created.After(n.Driver.Created):
		return p.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" is being replaced"), false
	case n.Validator.Ready:
		return turn{}, true
	case n.Validator.Reason != "":
		return turn{progress: p.progress(n.Validator.Reason, n.Validator.Message, n.Validator.Failed)}, false
	default:
		return p.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" has not passed yet"), false
	}
}

// deleteDependants deletes the pods that are older than the driver pod.
func (p *driverPlan) deleteDependants() turn {
	older := p.node.olderThanDriver()
	t := p.act(ActionDeleteDependants, nil, "pods are older than the new driver pod")
	t.step.Pods = older
	t.progress.Message = fmt.Sprintf("pod %s is older than the new driver pod, and is deleted", older[0].Name)
	return t
}

// failed is a node whose round has failed. It recovers by itself, or a new round begins.
func (p *driverPlan) failed() turn {
	n := p.node
	switch {
	case n.Requested || n.State == StateRequired:
		return p.begin(true, "a new attempt was requested")
	case n.inSync() && n.Driver.Ready:
		return p.recover()
	case n.outdated() && n.Target != p.record.Target:
		return p.begin(p.record.Requested, "the driver has another target")
	case !p.record.RetryAt.IsZero() && !p.now.Before(p.record.RetryAt):
		return p.again()
	case !p.record.Restarted && (p.claimsCordon() || p.record.Reason == ""):
		// Another client has written the state: this operator uncordons in the patch to StateFailed, and has a reason.
		return p.fail(cmp.Or(p.record.Reason, v1.ReasonUpgradeFailed),
			cmp.Or(p.record.Message, "another client has ended the upgrade"))
	}
	waiting := p.wait(cmp.Or(p.record.Reason, v1.ReasonUpgradeFailed), p.record.Message)
	waiting.until = p.record.RetryAt
	return waiting
}

// claimsCordon reports whether the node has a cordon that is this operator's by its record.
func (p *driverPlan) claimsCordon() bool { return p.own && p.record.Cordoned && p.node.Unschedulable }

// recover ends a failed round whose driver is ready after all.
func (p *driverPlan) recover() turn {
	if !p.record.Restarted {
		return p.done("the driver is up to date")
	}
	waiting, validated := p.validate()
	if validated {
		return p.done("the new driver is validated after all")
	}
	waiting.progress = p.progress(cmp.Or(p.record.Reason, v1.ReasonUpgradeFailed), p.record.Message, false)
	return waiting
}
