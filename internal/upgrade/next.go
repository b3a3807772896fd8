package upgrade

import (
	"cmp"
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// idle is a node whose driver was up to date when it was last looked at.
func (v *visit) idle() turn {
	n := v.node
	switch {
	case n.Target == "" || !v.governed:
		return turn{}
	case n.Requested:
		return v.begin(true, "an upgrade was requested")
	case n.outdated():
		return v.begin(false, "the driver is outdated")
	default:
		return v.upToDate()
	}
}

// upToDate is an idle node whose driver is not outdated.
func (v *visit) upToDate() turn {
	n := v.node
	switch ready := n.inSync() && n.Driver.Ready; {
	case ready && v.claimsCordon():
		// Another client has written the state: this operator uncordons in the patch to StateDone.
		return v.recover()
	case v.record.Target != "" && v.record.Target != n.Target && v.unloads():
		return v.unloading()
	case ready && n.State != StateNone && n.State != StateDone:
		return v.done("the driver is up to date")
	}
	return turn{}
}

// unloading is an idle node whose driver pod was deleted before the planner saw that it was outdated.
func (v *visit) unloading() turn {
	if !v.reloads() {
		return turn{until: v.unloadDeadline()}
	}
	t := v.begin(true, v.reloading())
	t.step.Patch.Record.DriverPod = ""
	return t
}

// waitForJobs is a cordoned node on which jobs still run.
func (v *visit) waitForJobs() turn {
	if t, ended := v.cutShort(); ended {
		return t
	}
	n := v.node
	if n.KubeletReady && n.Workload != nil && len(n.Workload.Jobs) == 0 {
		return v.emptied("no job runs any more")
	}
	waiting := v.unready()
	if n.KubeletReady && n.Workload != nil {
		waiting = v.wait(v1.ReasonUpgradeWaitingForJobs, "waits for "+listPods(n.Workload.Jobs))
	}
	return v.by(v.policy.JobsTimeout, waiting, func() turn {
		t, _ := v.enter(StatePodDeletion, "waitForCompletion.timeoutSeconds has passed")
		return t
	})
}

// emptied is the patch of a node that waits for jobs no more.
func (v *visit) emptied(why string) turn {
	if len(v.node.Workload.Users) > 0 {
		t, _ := v.enter(StatePodDeletion, why)
		return t
	}
	return v.restart(why + "; no pod uses the GPUs")
}

// restart is the patch with which the driver pod may be replaced.
func (v *visit) restart(why string) turn {
	t, patch := v.enter(StatePodRestart, why)
	patch.ReleasePool = v.node.MoveTo != ""
	patch.Record.Moves = v.record.Moves || patch.ReleasePool
	return t
}

// podDeletion is a cordoned node whose GPU users are evicted.
func (v *visit) podDeletion() turn {
	if t, ended := v.cutShort(); ended {
		return t
	}
	waiting, users := v.evict(false)
	if users == none {
		return v.restart("no pod uses the GPUs any more")
	}
	return v.by(v.policy.PodDeletionTimeout, waiting, func() turn {
		if !v.policy.Drains {
			return v.fail(timeoutReason(waiting), "podDeletion.timeoutSeconds has passed: "+waiting.progress.Message)
		}
		t, _ := v.enter(StateDrain, "podDeletion.timeoutSeconds has passed: "+waiting.progress.Message)
		return t
	})
}

// drain is a cordoned node whose pods are all evicted. What ends it is that no pod uses the GPUs.
func (v *visit) drain() turn {
	if t, ended := v.cutShort(); ended {
		return t
	}
	waiting, users := v.evict(true)
	if users == none {
		return v.restart("no pod uses the GPUs any more")
	}
	return v.by(v.policy.DrainTimeout, waiting, func() turn {
		return v.fail(timeoutReason(waiting), "drain.timeoutSeconds has passed: "+waiting.progress.Message)
	})
}

// timeoutReason is the reason of a failure from the turn that took too long.
func timeoutReason(waiting turn) string { return waiting.progress.Reason }

// cutShort returns what ends the upgrade of a node whose driver was not replaced yet, or lets it go on to the driver.
func (v *visit) cutShort() (turn, bool) {
	n := v.node
	switch {
	case !n.Unschedulable:
		return v.fail(v1.ReasonUpgradeUncordoned, "another client has uncordoned the node"), true
	case n.Skip:
		t, patch := v.yield("the node is excluded by a label")
		if !v.record.Restarted {
			v.end(patch)
		}
		return t, true
	case n.inSync() && n.Driver.Ready && n.Driver.UID == v.record.DriverPod && !v.record.Restarted:
		return v.done("the driver is up to date again"), true
	case n.inSync() && !n.Driver.Unloading && n.Driver.UID != v.record.DriverPod:
		return v.restart(fmt.Sprintf("driver pod %s was replaced outside the upgrade", n.Driver.Name)), true
	case v.isDead():
		return v.fail(v1.ReasonUpgradeNodeNotReady, v.notReady()), true
	}
	return turn{}, false
}

// podRestart is a cordoned node whose driver pod is replaced.
func (v *visit) podRestart() turn {
	n := v.node
	if n.Target != "" && v.record.Target != n.Target {
		t, patch := v.enter(StatePodRestart, "the driver has another target")
		patch.Record.Since = v.now
		return t
	}
	if n.KubeletReady && n.inSync() && n.Driver.Ready {
		return v.driverReady()
	}
	if !v.restarted() {
		if t, ended := v.cutShort(); ended {
			return t
		}
	}
	waiting := v.replaceDriver()
	switch {
	case waiting.step != nil && waiting.step.Action == ActionPatch:
		return waiting
	case waiting.keeps && !waiting.until.IsZero():
		// The images are pulled, which has its own limit.
		return waiting
	}
	return v.by(v.policy.DriverTimeout, waiting, func() turn {
		why := cmp.Or(v.node.Failing, waiting.progress.Message)
		return v.fail(timeoutReason(waiting), "the driver is not ready in time: "+why)
	})
}

// driverReady is a node in StatePodRestart whose driver pod is the right one, and ready.
func (v *visit) driverReady() turn {
	if !v.restarted() {
		return v.done("the driver is up to date again")
	}
	if _, validated := v.validate(); validated {
		return v.done("the new driver is validated")
	}
	t, patch := v.enter(StateValidation, "the new driver is ready")
	patch.Record.Restarted = true
	return t
}

// replaceDriver waits until the right driver pod is ready, and deletes another one once no pod uses the GPUs.
func (v *visit) replaceDriver() turn {
	n := v.node
	switch {
	case !n.KubeletReady:
		return v.unready()
	case n.Target == "" || n.Driver == nil:
		return v.wait(v1.ReasonUpgradeRestarting, "the new driver pod is not created yet")
	case n.Driver.Ending:
		return v.wait(v1.ReasonUpgradeRestarting, "driver pod "+n.Driver.Name+" is ending")
	case !n.stale() && !n.Driver.Unloading:
		return v.awaitDriver()
	case !n.Unschedulable:
		return v.fail(v1.ReasonUpgradeUncordoned, "another client has uncordoned the node")
	}
	waiting, users := v.evict(false)
	switch {
	case users != none:
		return waiting
	case !n.stale():
		return v.awaitDriver()
	case n.MoveTo != "":
		return v.restart("the node moves to driver pool " + n.MoveTo)
	default:
		return v.deleteDriver()
	}
}

// deleteDriver deletes the driver pod, once the images of the new one are there.
func (v *visit) deleteDriver() turn {
	if v.pulls() {
		if t, pulled := v.pull(); !pulled {
			return t
		}
		return v.pulledOther()
	}
	return v.act(ActionDeleteDriver, v.node.Driver, "no pod uses the GPUs, so the driver can be replaced")
}

// pulledOther is the patch of a node on which the images of another target are, that it got after it was cordoned. The
// time that the driver may take begins now.
func (v *visit) pulledOther() turn {
	t, patch := v.enter(StatePodRestart, "the images of the driver's other target are pulled")
	patch.Record.Pulled, patch.Record.Since = v.node.Target, v.now
	patch.Event = ""
	return t
}

// awaitDriver waits for the driver pod, with its own reason.
func (v *visit) awaitDriver() turn {
	driver := v.node.Driver
	if driver.Reason == "" {
		return v.wait(v1.ReasonUpgradeRestarting, "driver pod "+driver.Name+" starts")
	}
	return turn{progress: v.progress(driver.Reason, driver.Message, driver.Failed)}
}

// validation is a cordoned node with the new driver, which the validator checks.
func (v *visit) validation() turn {
	n := v.node
	stale := n.Driver != nil && !n.Driver.Ending && n.Target != "" && n.stale()
	if stale || n.Target != "" && v.record.Target != n.Target {
		t, patch := v.enter(StatePodRestart, "the driver has another target")
		patch.Record.Restarted = true
		return t
	}
	waiting, validated := v.validate()
	if validated {
		return v.done("the new driver is validated")
	}
	return v.by(v.policy.ValidationTimeout, waiting, func() turn {
		return v.fail(timeoutReason(waiting), "the driver is not validated in time: "+waiting.progress.Message)
	})
}

// validate reports whether the validator has passed with the driver pod that runs now, and what the node does until
// then. Pods that are older than the driver pod work with the old driver, or have checked it, so they are deleted.
// Where k8s-driver-manager has replaced the modules, there are none.
func (v *visit) validate() (turn, bool) {
	n := v.node
	switch {
	case !n.KubeletReady:
		return v.unready(), false
	case !n.inSync():
		return v.wait(v1.ReasonUpgradeRestarting, "the driver pod is being replaced"), false
	case !n.Driver.Ready:
		return v.awaitDriver(), false
	case len(n.olderThanDriver()) > 0:
		return v.deleteDependants(), false
	case !n.ValidatorWanted:
		return turn{}, true
	case n.Validator == nil:
		why := cmp.Or(n.ValidatorPaused, "the node has no validator pod yet")
		return v.wait(v1.ReasonUpgradeValidating, why), false
	case n.Validator.Ending:
		return v.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" is ending"), false
	case !n.Validator.Created.After(n.Driver.Created):
		return v.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" is being replaced"), false
	case n.Validator.Ready:
		return turn{}, true
	case n.Validator.Reason != "":
		return turn{progress: v.progress(n.Validator.Reason, n.Validator.Message, n.Validator.Failed)}, false
	default:
		return v.wait(v1.ReasonUpgradeValidating, "validator pod "+n.Validator.Name+" has not passed yet"), false
	}
}

// deleteDependants deletes the pods that are older than the driver pod.
func (v *visit) deleteDependants() turn {
	older := v.node.olderThanDriver()
	t := v.act(ActionDeleteDependants, nil, "pods are older than the new driver pod")
	t.step.Pods = older
	t.progress.Message = fmt.Sprintf("pod %s is older than the new driver pod, and is deleted", older[0].Name)
	return t
}

// failed is a node whose round has failed. It recovers by itself, or a new round begins.
func (v *visit) failed() turn {
	n := v.node
	switch {
	case n.Requested || n.State == StateRequired:
		return v.begin(true, "a new attempt was requested")
	case n.inSync() && n.Driver.Ready:
		return v.recover()
	case n.outdated() && n.Target != v.record.Target:
		return v.begin(v.record.Requested, "the driver has another target")
	case v.retries():
		return v.again()
	case !v.record.Restarted && (v.claimsCordon() || v.record.Reason == ""):
		// Another client has written the state: this operator uncordons in the patch to StateFailed, and has a reason.
		return v.fail(cmp.Or(v.record.Reason, v1.ReasonUpgradeFailed),
			cmp.Or(v.record.Message, "another client has ended the upgrade"))
	}
	waiting := v.wait(cmp.Or(v.record.Reason, v1.ReasonUpgradeFailed), v.record.Message)
	waiting.until = v.record.RetryAt
	return waiting
}

// retries reports whether the failed round is to be tried again now.
func (v *visit) retries() bool { return !v.record.RetryAt.IsZero() && !v.now.Before(v.record.RetryAt) }

// claimsCordon reports whether the node has a cordon that is this operator's by its record.
func (v *visit) claimsCordon() bool { return v.own && v.record.Cordoned && v.node.Unschedulable }

// recover ends a failed round whose driver is ready after all.
func (v *visit) recover() turn {
	if !v.record.Restarted {
		return v.done("the driver is up to date")
	}
	waiting, validated := v.validate()
	if validated {
		return v.done("the new driver is validated after all")
	}
	waiting.progress = v.progress(cmp.Or(v.record.Reason, v1.ReasonUpgradeFailed), v.record.Message, false)
	return waiting
}
