package upgrade

import (
	"cmp"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// layoutTime is how long a slot for a MIG layout counts at most: a MIG manager that does not end must not hold up other
// nodes. The node counts as unavailable for as long as its GPUs cannot be used.
const layoutTime = 15 * time.Minute

// MIG is what is known of the MIG layout of a node.
type MIG struct {
	// Partitioned: the node has a MIG manager. Off: it has none now, but is to have one again: its label pauses it, or it
	// is refused.
	Partitioned, Off bool
	// Requested is the layout in the node's label. Ended: the MIG manager has reported its outcome; Changing: it is
	// applying it.
	Requested       string
	Ended, Changing bool
	// Wanted is the layout that the operator is to request instead; empty for none.
	Wanted string
	// Idle: no pod uses the GPUs, or the spec does not wait for them. It is false while the pods are not read.
	Idle bool
	// Evict: the spec wants the pods that use the GPUs evicted.
	Evict bool
	// Recorded: the node has the annotation of a Drain. Unreadable: it cannot be decoded. Drain is nil if there is none,
	// or if it cannot be decoded.
	Recorded, Unreadable bool
	Drain                *Drain
}

// NeedsTenants reports whether the next step of the node depends on which pods use its GPUs.
func (n *Node) NeedsTenants() bool {
	return n.MIG.Wanted != "" && n.KubeletReady && !n.MIG.Unreadable && !n.upgrading() && !n.relayouting()
}

// hasLayoutSlot reports whether the node has a slot for a MIG layout that counts: the layout is still wanted, or the
// MIG manager has not reported its outcome. An outcome of an earlier layout is removed with the request. The slot of a
// node that is drained counts until that has ended, and one to evict pods only while they may be evicted: it must not
// hold up other nodes while it waits for them.
func (c *Cluster) hasLayoutSlot(n *Node) bool {
	slot, granted := c.Slots[n.Name]
	if !granted || slot.UID != n.UID || slot.Layout == "" {
		return false
	}
	if drain := n.ownDrain(); drain != nil && drain.Granted.Equal(slot.Since) {
		return drain.State.InProgress()
	}
	if !c.Now.Before(slot.Since.Add(layoutTime)) || slot.Since.After(c.Now.Add(layoutTime)) {
		return false
	}
	if n.MIG.Requested == slot.Layout {
		return !n.MIG.Ended
	}
	return n.MIG.Wanted == slot.Layout && (!slot.Evict || c.evictsFor(n))
}

// beginsLayout reports whether the node has a slot for a MIG layout and has not begun to change it.
func (c *Cluster) beginsLayout(n *Node) bool {
	return c.hasLayoutSlot(n) && !n.relayouting() && n.MIG.Requested != c.Slots[n.Name].Layout
}

// layoutsEnd returns when the first of the slots for MIG layouts counts no longer; zero if there are none. Nodes that
// are drained have deadlines of their own.
func (c *Cluster) layoutsEnd(slots Slots) (end time.Time) {
	for i := range c.Nodes {
		slot, granted := slots[c.Nodes[i].Name]
		if granted && slot.Layout != "" && !c.Nodes[i].relayouting() {
			end = times.Earlier(end, slot.Since.Add(layoutTime))
		}
	}
	return end
}

// awaitsLayout reports whether the node may get a slot for a MIG layout. An upgrade of its driver comes first.
func (c *Cluster) awaitsLayout(n *Node, driver turn) bool {
	return n.NeedsTenants() && (n.MIG.Idle || c.evictsFor(n)) && !driver.wants && !c.Slots.Valid(n) &&
		!c.hasLayoutSlot(n)
}

// AwaitingTenants returns the indexes of the nodes for which it has to be known now whether pods use their GPUs: those
// that have a slot for a MIG layout that is not requested yet, or that the budgets allow one. It does not matter where
// they are evicted.
func (c *Cluster) AwaitingTenants() []int {
	budgets := map[string]*budget{}
	var waiting []int
	for i := range c.Nodes {
		n := &c.Nodes[i]
		switch {
		case !n.NeedsTenants() || c.Slots.Valid(n) || c.evictsFor(n):
			continue
		case c.hasLayoutSlot(n):
			waiting = append(waiting, i)
			continue
		case budgets[n.Group] == nil:
			budgets[n.Group] = c.budget(n.Group)
		}
		b := budgets[n.Group]
		if refused := b.refuses(n, &b.layouts); refused.reason == "" && !c.driverPlan(n).turn().wants {
			waiting = append(waiting, i)
		}
	}
	return waiting
}

// grantLayouts adds slots for MIG layouts, as far as the budgets allow after those for drivers.
func (c *Cluster) grantLayouts(slots Slots, budgets map[string]*budget, turns []turn) {
	if c.SlotsConflict != "" {
		return
	}
	var candidates []*Node
	for i := range c.Nodes {
		if c.awaitsLayout(&c.Nodes[i], turns[i]) {
			candidates = append(candidates, &c.Nodes[i])
		}
	}
	slices.SortFunc(candidates, func(a, b *Node) int {
		return cmp.Or(first(!a.hasFailedDrain(), !b.hasFailedDrain()), compare(a, b))
	})
	for _, n := range candidates {
		b := budgets[n.Group]
		if refused := b.refuses(n, &b.layouts); refused.reason != "" {
			continue
		}
		slots[n.Name] = Slot{UID: n.UID, Layout: n.MIG.Wanted, Since: c.Now, Evict: c.evictsFor(n)}
		b.hold(n, doesLayout)
	}
}
