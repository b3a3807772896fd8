package upgrade

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// ownDrain is the record of this node; nil if there is none, or one that was copied from a deleted Node.
func (n *Node) ownDrain() *Drain {
	if n.MIG.Drain == nil || n.MIG.Drain.UID != n.UID {
		return nil
	}
	return n.MIG.Drain
}

// hasFailedDrain reports whether the last attempt to drain the node has failed. Such nodes come last, as in compare.
func (n *Node) hasFailedDrain() bool {
	drain := n.ownDrain()
	return drain != nil && drain.Failures > 0
}

// relayouting reports whether the node is drained for a MIG layout, or its layout is changed after that.
func (n *Node) relayouting() bool {
	drain := n.ownDrain()
	return drain != nil && drain.State.InProgress()
}

// NeedsDrained reports whether the next step for the node's MIG layout may depend on its Workload. Without a record it
// does only if the node also has a slot for the layout.
func (c *Cluster) NeedsDrained(n *Node) bool {
	if !n.KubeletReady || n.upgrading() {
		return false
	}
	if n.relayouting() {
		return n.MIG.Drain.State.Evicts()
	}
	return n.MIG.Wanted != "" && c.hasLayoutSlot(n) && c.evictsFor(n)
}

// IsDrained reports whether a drain evicts all pods of the node, for an upgrade of its driver or for its MIG layout.
func (n *Node) IsDrained() bool {
	record, drain := n.ownRecord(), n.ownDrain()
	return record != nil && record.State == StateDrain || drain != nil && drain.State == DrainAll && !n.upgrading()
}

// evictsFor reports whether the pods that use the GPUs may be evicted for the layout that is wanted. After a failed
// drain they are not until it is tried again: until then the layout waits for them, as without evictions. A cordon that
// an upgrade of the driver has left is not touched.
func (c *Cluster) evictsFor(n *Node) bool {
	policy, governed := c.Policies[n.Group]
	if !n.MIG.Evict || !governed || policy.Paused || n.Skip || n.cordonedByUpgrade() {
		return false
	}
	drain := n.ownDrain()
	if drain == nil || drain.Layout != n.MIG.Wanted {
		return true
	}
	retryAt := policy.plausible(drain.RetryAt, c.Now)
	return !retryAt.IsZero() && !c.Now.Before(retryAt)
}

// cordonedByUpgrade reports whether the upgrade of the driver has cordoned the node, and has not uncordoned it yet.
func (n *Node) cordonedByUpgrade() bool {
	record := n.ownRecord()
	return record != nil && record.Cordoned
}

// layout returns what the node does now for its MIG layout, which it must not begin if beyond has a reason. An upgrade
// of its driver comes first.
func (c *Cluster) layout(n *Node, beyond refusal) turn {
	v := &relayout{visit: c.visit(n), cluster: c}
	v.beyond = beyond
	drain := n.ownDrain()
	switch {
	case n.MIG.Unreadable:
		// The cordon may be the operator's. The assessment of the node reports it.
		return turn{}
	case drain == nil && n.MIG.Recorded:
		t, _ := v.patch(nil, "the record of a drain is another node's")
		return t
	case n.upgrading():
		return turn{}
	case drain == nil:
		return v.request()
	}
	v.drain = *drain
	v.drain.RetryAt = v.policy.plausible(drain.RetryAt, v.now)
	// The steps of an upgrade that evict pods have their deadlines by its record.
	v.record.Since = drain.Since
	switch {
	case !drain.State.known():
		return v.end("the drain for a MIG layout has a state of another release of the operator, and ends")
	case drain.State.InProgress():
		return v.running()
	default:
		return v.afterFailure()
	}
}

// afterFailure is a node whose last drain has failed.
func (v *relayout) afterFailure() turn {
	n, drain := v.node, &v.drain
	switch {
	case drain.Cordoned && n.Unschedulable:
		return v.end("another client has written that the drain has failed")
	case n.MIG.Off:
		return turn{}
	case n.MIG.Wanted != drain.Layout || !n.MIG.Evict:
		t, _ := v.patch(nil, "the layout is not wanted any more")
		return t
	}
	t := v.request()
	t.until = drain.RetryAt
	if !v.now.Before(drain.RetryAt) {
		t.until = time.Time{}
	}
	return t
}

// relayout plans the MIG layout of one node. drain is zero if it has no record.
type relayout struct {
	*visit
	cluster *Cluster
	drain   Drain
}

// patch is a turn with a patch that leaves this record.
func (v *relayout) patch(drain *Drain, why string) (turn, *LayoutPatch) {
	patch := &LayoutPatch{Drain: drain}
	return turn{step: &Step{Action: ActionLayout, Layout: patch, Why: why}}, patch
}

// enter is the patch to a state of the drain.
func (v *relayout) enter(state DrainState, why string) (turn, *LayoutPatch) {
	drain := v.drain
	if state != drain.State {
		drain.Since = v.now
	}
	drain.UID, drain.State, drain.Message = v.node.UID, state, ""
	return v.patch(&drain, why)
}

// request is the turn of a node that is not drained: it requests the layout if it has a slot for it and no pod uses the
// GPUs, or begins to drain the node.
func (v *relayout) request() turn {
	n := v.node
	if v.beyond.reason != "" {
		return turn{}
	}
	if !v.cluster.hasLayoutSlot(n) || n.MIG.Requested == v.cluster.Slots[n.Name].Layout || !n.NeedsTenants() {
		return turn{}
	}
	idle := n.MIG.Idle
	if v.cluster.evictsFor(n) {
		if n.Workload == nil {
			return turn{}
		}
		if idle = len(n.Workload.Users) == 0; !idle {
			return v.begin()
		}
	}
	if !idle {
		return turn{}
	}
	t, patch := v.patch(nil, "no pod uses the GPUs, so the MIG layout can be changed")
	patch.Request = n.MIG.Wanted
	return t
}

// begin cordons the node, unless a pod that may not be evicted would keep the drain from its end: others would lose
// their work for nothing, at each attempt.
func (v *relayout) begin() turn {
	n, state := v.node, DrainUsers
	v.drain.Layout, v.drain.Granted, v.drain.RetryAt = n.MIG.Wanted, v.cluster.Slots[n.Name].Since, time.Time{}
	var jobs []WorkloadPod
	if v.policy.WaitsForJobs {
		jobs = n.Workload.Jobs
	}
	if obstacle := v.obstacle(jobs); obstacle != "" {
		return v.fail(obstacle, true)
	}
	if len(jobs) > 0 {
		state = DrainJobs
	}
	why := "the node is cordoned to change its MIG layout to " + n.MIG.Wanted
	if n.Unschedulable {
		why = "the node, which is cordoned already, is drained to change its MIG layout to " + n.MIG.Wanted
	}
	t, patch := v.enter(state, why)
	if !n.Unschedulable {
		patch.Drain.Cordoned, patch.Unschedulable = true, new(true)
	}
	patch.Event = why
	return t
}

// obstacle describes the first pod with GPUs that no step of the drain evicts, except for the jobs that are waited for.
// It is empty if there is none.
func (v *relayout) obstacle(jobs []WorkloadPod) string {
	evictsAll := v.drain.State == DrainAll || v.policy.Drains && v.policy.PodDeletionTimeout > 0
	for _, pod := range v.node.Workload.Users {
		isJob := slices.ContainsFunc(jobs, func(job WorkloadPod) bool { return job.UID == pod.UID })
		if pod.Forbidden && !pod.Ending && !isJob && (pod.Lasting || !evictsAll) {
			return pod.describeForbidden()
		}
	}
	return ""
}

// running is a node that is drained, or whose layout is changed.
func (v *relayout) running() turn {
	n, evicts := v.node, v.drain.State.Evicts()
	switch {
	case v.drain.Since.After(v.now):
		t, patch := v.patch(new(v.drain), "the record of the drain has a time in the future")
		patch.Drain.Since = v.now
		return t
	case !n.MIG.Partitioned && !n.MIG.Off:
		return v.end("the node has no MIG manager any more")
	case !n.Unschedulable && evicts:
		return v.fail("another client has uncordoned the node", false)
	case !n.Unschedulable && v.drain.Cordoned:
		t, patch := v.patch(new(v.drain), "another client has uncordoned the node")
		patch.Drain.Cordoned = false
		return t
	case evicts:
		return v.draining()
	default:
		return v.changing()
	}
}

// draining is a cordoned node whose layout is not requested yet.
func (v *relayout) draining() turn {
	n, drain := v.node, &v.drain
	switch {
	case n.MIG.Requested == drain.Layout:
		t, _ := v.enter(DrainChanging, "the layout is requested already")
		return t
	case n.MIG.Wanted == "" && !n.MIG.Off || !n.MIG.Evict || n.Skip:
		return v.end("the node need not be drained for a MIG layout any more")
	case v.isDead():
		return v.fail(v.notReady(), true)
	case n.MIG.Off && drain.State != DrainJobs:
		return v.awaitManager()
	case !n.MIG.Off && n.MIG.Wanted != drain.Layout:
		return v.retarget(drain.State)
	case drain.State == DrainJobs:
		return v.waitForJobs()
	default:
		return v.evictUsers()
	}
}

// managerOff is the message of a drained node whose MIG manager is off for now.
const managerOff = "the MIG manager of the node is paused or refused"

// awaitManager is a drained node whose MIG manager is off for now, such as while k8s-driver-manager replaces a driver.
// Nothing is evicted meanwhile, and the deadlines hold.
func (v *relayout) awaitManager() turn {
	limit, option := v.evictionLimit()
	waiting := v.report(v.hold(v1.ReasonUpgradeBlocked, managerOff))
	return v.by(limit, waiting, func() turn { return v.fail(option+".timeoutSeconds has passed: "+managerOff, true) })
}

// evictionLimit is how long the state may take, and the block of the upgradePolicy that says so.
func (v *relayout) evictionLimit() (limit time.Duration, option string) {
	if v.drain.State == DrainAll {
		return v.policy.DrainTimeout, "drain"
	}
	return v.policy.PodDeletionTimeout, "podDeletion"
}

// retarget is the patch to a state for the layout that is wanted now.
func (v *relayout) retarget(state DrainState) turn {
	t, patch := v.enter(state, "another MIG layout is wanted: "+v.node.MIG.Wanted)
	patch.Drain.Layout = v.node.MIG.Wanted
	return t
}

// waitForJobs is a cordoned node on which jobs still run.
func (v *relayout) waitForJobs() turn {
	n := v.node
	switch known := n.KubeletReady && n.Workload != nil; {
	case known && len(n.Workload.Users) == 0 && !n.MIG.Off:
		return v.change()
	case known && len(n.Workload.Jobs) == 0:
		t, _ := v.enter(DrainUsers, "no job runs any more")
		return t
	}
	return v.by(v.policy.JobsTimeout, turn{until: v.untilDead()}, func() turn {
		t, _ := v.enter(DrainUsers, "waitForCompletion.timeoutSeconds has passed")
		return t
	})
}

// evictUsers is a cordoned node whose GPU users are evicted, or all pods that a drain evicts. What ends it is that no
// pod uses the GPUs.
func (v *relayout) evictUsers() turn {
	all := v.drain.State == DrainAll
	waiting, users := v.evict(all)
	if users == none {
		return v.change()
	}
	if users == some {
		if obstacle := v.obstacle(nil); obstacle != "" {
			return v.fail(obstacle, true)
		}
	}
	limit, option := v.evictionLimit()
	message := waiting.progress.Message
	waiting = v.report(waiting)
	return v.by(limit, waiting, func() turn {
		why := option + ".timeoutSeconds has passed: " + message
		if all || !v.policy.Drains {
			return v.fail(why, true)
		}
		t, _ := v.enter(DrainAll, why)
		return t
	})
}

// change requests the layout.
func (v *relayout) change() turn {
	t, patch := v.enter(DrainChanging, "no pod uses the GPUs any more, so the MIG layout can be changed")
	patch.Request = v.node.MIG.Wanted
	return t
}

// report records what blocks the evictions, so that it is reported. It stays until the next attempts have succeeded.
func (v *relayout) report(waiting turn) turn {
	message := ""
	switch {
	case waiting.progress.Held:
		message = waiting.progress.Message
	case waiting.step != nil || v.node.Workload == nil:
		message = v.drain.Message
	}
	if message != v.drain.Message {
		drain := v.drain
		drain.Message = message
		t, _ := v.patch(&drain, cmp.Or(message, "nothing blocks the evictions any more"))
		return t
	}
	return waiting
}

// changing is a node whose layout is requested. Whatever is requested since by others, it ends with the next outcome.
func (v *relayout) changing() turn {
	n := v.node
	mig := &n.MIG
	switch {
	case !mig.Ended && (mig.Requested != "" || mig.Changing):
		return v.by(layoutTime, turn{}, func() turn { return v.end("the MIG manager has not reported an outcome in time") })
	case mig.Wanted != "" && mig.Evict && !n.Skip && n.Unschedulable:
		return v.retarget(DrainUsers)
	default:
		return v.end("the MIG manager has reported an outcome")
	}
}

// uncordon adds to the last patch of a drain that the node is uncordoned, if this operator has cordoned it for the
// layout. A cordon that an upgrade of the driver has taken over is the upgrade's.
func (v *relayout) uncordon(patch *LayoutPatch) {
	if v.drain.Cordoned && v.node.Unschedulable && !v.node.cordonedByUpgrade() {
		patch.Unschedulable = new(false)
	}
}

// end is the last patch of a drain.
func (v *relayout) end(why string) turn {
	t, patch := v.patch(nil, why)
	v.uncordon(patch)
	patch.Event = why
	return t
}

// fail is the patch to DrainFailed. If it is tried again, that is after a delay as for upgrades: each attempt cordons
// the node for a while.
func (v *relayout) fail(message string, again bool) turn {
	t, patch := v.enter(DrainFailed, message)
	v.uncordon(patch)
	drain := patch.Drain
	drain.Cordoned, drain.Message = false, text.Truncate(message, maxMessage)
	if again {
		drain.Failures = countFailure(drain.Failures)
		if delay := v.policy.retryAfter(drain.Failures); delay > 0 {
			drain.RetryAt = v.now.Add(delay)
		}
	}
	patch.Event, patch.Warning = drain.Message, true
	return t
}
