package upgrade

import (
	"cmp"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
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
	record := n.ownDrain()
	return record != nil && record.Failures > 0
}

// relayouting reports whether the node is drained for a MIG layout, or its layout is changed after that.
func (n *Node) relayouting() bool {
	record := n.ownDrain()
	return record != nil && record.State.InProgress()
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
	record, layout := n.ownRecord(), n.ownDrain()
	return record != nil && record.State == StateDrain || layout != nil && layout.State == DrainAll && !n.upgrading()
}

// evictsFor reports whether the pods that use the GPUs may be evicted for the layout that is wanted. After a failed
// drain they are not until it is tried again: until then the layout waits for them, as without evictions. A cordon that
// an upgrade of the driver has left is not touched.
func (c *Cluster) evictsFor(n *Node) bool {
	policy, governed := c.Policies[n.Group]
	if !n.MIG.Evict || !governed || policy.Paused || n.Skip || n.cordonedByUpgrade() {
		return false
	}
	record := n.ownDrain()
	if record == nil || record.Layout != n.MIG.Wanted {
		return true
	}
	retryAt := policy.plausible(record.RetryAt, c.Now)
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
	p := &layoutPlan{cluster: c, node: n, policy: c.Policies[n.Group], beyond: beyond}
	record := n.ownDrain()
	if record != nil {
		p.record = *record
		p.record.RetryAt = p.policy.plausible(record.RetryAt, c.Now)
	}
	p.drain = c.drain(n, p.record.Since)
	switch {
	case n.MIG.Unreadable:
		// The cordon may be the operator's. The assessment of the node reports it.
		return turn{}
	case record == nil && n.MIG.Recorded:
		return p.patch(nil, "the record of a drain is another node's")
	case n.upgrading():
		return turn{}
	case record == nil:
		return p.request()
	case !record.State.known():
		return p.end("the drain for a MIG layout has a state of another release of the operator, and ends")
	case record.State.InProgress():
		return p.running()
	default:
		return p.afterFailure()
	}
}

// afterFailure is a node whose last drain has failed.
func (p *layoutPlan) afterFailure() turn {
	n, record := p.node, &p.record
	switch {
	case record.Cordoned && n.Unschedulable:
		return p.end("another client has written that the drain has failed")
	case n.MIG.Off:
		return turn{}
	case n.MIG.Wanted != record.Layout || !n.MIG.Evict:
		return p.patch(nil, "the layout is not wanted any more")
	}
	t := p.request()
	if p.cluster.Now.Before(record.RetryAt) {
		t.until = record.RetryAt
	}
	return t
}

// layoutPlan plans the MIG layout of one node.
type layoutPlan struct {
	cluster *Cluster
	node    *Node
	policy  Policy
	// record of the drain; zero if the node has none.
	record Drain
	drain  drain.Drain
	// beyond is why the node may not begin although it has a slot, see budget.
	beyond refusal
}

// patch is a turn with a patch that leaves this record.
func (p *layoutPlan) patch(record *Drain, why string) turn {
	return turn{step: &Step{Action: ActionLayout, Layout: &LayoutPatch{Drain: record}, Why: why}}
}

// enter is the patch to a state of the drain.
func (p *layoutPlan) enter(state DrainState, why string) turn {
	record := p.record
	if state != record.State {
		record.Since = p.cluster.Now
	}
	record.UID, record.State, record.Message = p.node.UID, state, ""
	return p.patch(&record, why)
}

// request is the turn of a node that is not drained: it requests the layout if it has a slot for it and no pod uses the
// GPUs, or begins to drain the node.
func (p *layoutPlan) request() turn {
	n := p.node
	if p.beyond.reason != "" || !p.cluster.hasLayoutSlot(n) || n.MIG.Requested == p.cluster.Slots[n.Name].Layout ||
		!n.NeedsTenants() {
		return turn{}
	}
	switch evicts := p.cluster.evictsFor(n); {
	case evicts && n.Workload == nil, !evicts && !n.MIG.Idle:
		return turn{}
	case evicts && !p.drain.Idle():
		return p.begin()
	}
	t := p.patch(nil, "no pod uses the GPUs, so the MIG layout can be changed")
	t.step.Layout.Request = n.MIG.Wanted
	return t
}

// begin cordons the node, unless a pod that may not be evicted would keep the drain from its end: others would lose
// their work for nothing, at each attempt.
func (p *layoutPlan) begin() turn {
	n, state, step := p.node, DrainUsers, p.drain.First()
	p.record.Layout, p.record.Granted, p.record.RetryAt = n.MIG.Wanted, p.cluster.Slots[n.Name].Since, time.Time{}
	if obstacle := p.drain.Obstacle(step); obstacle != "" {
		return p.fail(obstacle, true)
	}
	if step == drain.Jobs {
		state = DrainJobs
	}
	why := "the node is cordoned to change its MIG layout to " + n.MIG.Wanted
	if n.Unschedulable {
		why = "the node, which is cordoned already, is drained to change its MIG layout to " + n.MIG.Wanted
	}
	t := p.enter(state, why)
	patch := t.step.Layout
	if !n.Unschedulable {
		patch.Drain.Cordoned, patch.Unschedulable = true, new(true)
	}
	patch.Event = why
	return t
}

// running is a node that is drained, or whose layout is changed.
func (p *layoutPlan) running() turn {
	n, evicts := p.node, p.record.State.Evicts()
	switch {
	case p.record.Since.After(p.cluster.Now):
		t := p.patch(new(p.record), "the record of the drain has a time in the future")
		t.step.Layout.Drain.Since = p.cluster.Now
		return t
	case !n.MIG.Partitioned && !n.MIG.Off:
		return p.end("the node has no MIG manager any more")
	case !n.Unschedulable && evicts:
		return p.fail("another client has uncordoned the node", false)
	case !n.Unschedulable && p.record.Cordoned:
		t := p.patch(new(p.record), "another client has uncordoned the node")
		t.step.Layout.Drain.Cordoned = false
		return t
	case evicts:
		return p.draining()
	default:
		return p.changing()
	}
}

// drainSteps are the steps of the drain until the layout is requested.
var drainSteps = map[DrainState]drain.Step{DrainJobs: drain.Jobs, DrainUsers: drain.Users, DrainAll: drain.All}

// draining is a cordoned node whose layout is not requested yet.
func (p *layoutPlan) draining() turn {
	n, record, step := p.node, &p.record, drainSteps[p.record.State]
	switch dead := p.drain.Dead(); {
	case n.MIG.Requested == record.Layout:
		return p.enter(DrainChanging, "the layout is requested already")
	case n.MIG.Wanted == "" && !n.MIG.Off || !n.MIG.Evict || n.Skip:
		return p.end("the node need not be drained for a MIG layout any more")
	case dead != "":
		return p.fail(dead, true)
	case n.MIG.Off && step != drain.Jobs:
		return p.awaitManager(step)
	case !n.MIG.Off && n.MIG.Wanted != record.Layout:
		return p.retarget(record.State)
	case step == drain.Jobs:
		return p.waitForJobs()
	default:
		return p.evict(step)
	}
}

// managerOff is the message of a drained node whose MIG manager is off for now.
const managerOff = "the MIG manager of the node is paused or refused"

// awaitManager is a drained node whose MIG manager is off for now, such as while k8s-driver-manager replaces a driver.
// Nothing is evicted meanwhile, and the deadlines hold.
func (p *layoutPlan) awaitManager(step drain.Step) turn {
	deadline, passed := p.drain.Deadline(step)
	if passed != "" {
		return p.fail(passed+": "+managerOff, true)
	}
	return p.report(drain.Answer{Held: true, Message: managerOff, Deadline: deadline})
}

// retarget is the patch to a state for the layout that is wanted now.
func (p *layoutPlan) retarget(state DrainState) turn {
	t := p.enter(state, "another MIG layout is wanted: "+p.node.MIG.Wanted)
	t.step.Layout.Drain.Layout = p.node.MIG.Wanted
	return t
}

// waitForJobs is a cordoned node on which jobs still run.
func (p *layoutPlan) waitForJobs() turn {
	if p.drain.Idle() && !p.node.MIG.Off {
		return p.change()
	}
	next := p.drain.Next(drain.Jobs)
	if next.Done || next.Passed != "" {
		return p.enter(DrainUsers, cmp.Or(next.Passed, "no job runs any more"))
	}
	return turnOf(next)
}

// evict is a cordoned node whose GPU users are evicted, or all pods that a drain evicts. What ends it is that no pod
// uses the GPUs.
func (p *layoutPlan) evict(step drain.Step) turn {
	next := p.drain.Next(step)
	why, obstacle := next.Passed+": "+next.Message, p.drain.Obstacle(step)
	switch {
	case next.Done:
		return p.change()
	case obstacle != "":
		return p.fail(obstacle, true)
	case next.Passed == "":
		return p.report(next)
	case p.drain.IsLast(step):
		return p.fail(why, true)
	}
	return p.enter(DrainAll, why)
}

// change requests the layout.
func (p *layoutPlan) change() turn {
	t := p.enter(DrainChanging, "no pod uses the GPUs any more, so the MIG layout can be changed")
	t.step.Layout.Request = p.node.MIG.Wanted
	return t
}

// report is the turn of a node that waits. It records what blocks the evictions, so that it is reported. That stays
// until the next attempts have succeeded.
func (p *layoutPlan) report(waiting drain.Answer) turn {
	message := ""
	switch {
	case waiting.Held:
		message = waiting.Message
	case waiting.Evict != nil || p.node.Workload == nil:
		message = p.record.Message
	}
	if message == p.record.Message {
		return turnOf(waiting)
	}
	t := p.patch(new(p.record), cmp.Or(message, "nothing blocks the evictions any more"))
	t.step.Layout.Drain.Message, t.until = message, waiting.Deadline
	return t
}

// changing is a node whose layout is requested. Whatever is requested since by others, it ends with the next outcome.
func (p *layoutPlan) changing() turn {
	n, limit := p.node, p.record.Since.Add(layoutTime)
	mig := &n.MIG
	switch goesOn := !mig.Ended && (mig.Requested != "" || mig.Changing); {
	case goesOn && p.cluster.Now.Before(limit):
		return turn{until: limit}
	case goesOn:
		return p.end("the MIG manager has not reported an outcome in time")
	case mig.Wanted != "" && mig.Evict && !n.Skip && n.Unschedulable:
		return p.retarget(DrainUsers)
	default:
		return p.end("the MIG manager has reported an outcome")
	}
}

// last adds to the last patch of a drain that the node is uncordoned, if this operator has cordoned it for the layout.
// A cordon that an upgrade of the driver has taken over is the upgrade's. The Event has the message.
func (p *layoutPlan) last(patch *LayoutPatch, message string) {
	patch.Event = message
	if p.record.Cordoned && p.node.Unschedulable && !p.node.cordonedByUpgrade() {
		patch.Unschedulable = new(false)
	}
}

// end is the last patch of a drain.
func (p *layoutPlan) end(why string) turn {
	t := p.patch(nil, why)
	p.last(t.step.Layout, why)
	return t
}

// fail is the patch to DrainFailed. If it is tried again, that is after a delay as for upgrades: each attempt cordons
// the node for a while.
func (p *layoutPlan) fail(message string, again bool) turn {
	t := p.enter(DrainFailed, message)
	record := t.step.Layout.Drain
	record.Cordoned, record.Message = false, text.Truncate(message, maxMessage)
	if again {
		p.policy.countFailure(&record.Failures, &record.RetryAt, p.cluster.Now)
	}
	t.step.Layout.Warning = true
	p.last(t.step.Layout, record.Message)
	return t
}
