package upgrade

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxAhead is how many rounds a slot may be ahead of its node's record and count. A stale view of a node lacks a few
// rounds; a slot further ahead was written by another client.
const maxAhead = 1 << 20

// Valid reports whether the slot of the node for its upgrade counts: it is for the node's current or a later round, and
// that round has not ended. Once a slot does not count it never counts again, unless another client lowers the round of
// the record, so a stale view of the node can only count too many. A node with a slot for a later round than that of
// its record, which another client has written, takes over that round with its next patch. A node that must not be
// written cannot do so: its slot does not count.
func (s Slots) Valid(n *Node) bool {
	if n.unreadable() {
		return false
	}
	ahead, granted := s.ahead(n)
	if !granted || ahead != 0 {
		return granted && ahead > 0 && ahead <= maxAhead
	}
	record := n.ownRecord()
	return record != nil && (record.State == StateRequired || record.State.InProgress())
}

// ahead returns how many rounds the slot of the node for its upgrade is ahead of its record, and whether it has one.
// Without a record it is in round 0, and has begun none.
func (s Slots) ahead(n *Node) (rounds int64, granted bool) {
	slot, granted := s[n.Name]
	if !granted || slot.UID != n.UID || slot.Layout != "" || slot.Round < 0 {
		return 0, false
	}
	if record := n.ownRecord(); record != nil {
		return slot.Round - record.Round, true
	}
	return slot.Round, true
}

// upgrading reports whether an upgrade has begun on the node, by this operator or by NVIDIA's, and goes on within its
// deadlines. It does not by a label alone from which the operator does not continue: that must not hold up others.
func (n *Node) upgrading() bool {
	record := n.ownRecord()
	return record != nil && record.State.InProgress() || n.Installs && n.currentState().continues()
}

// budget is what the slots of one group may be. Those for drivers and for MIG layouts have the same holders, and each a
// share of the nodes that they are for.
type budget struct {
	policy Policy
	// holders have a slot, or are being upgraded: what each of them does.
	holders causes
	// beyond are the holders that have not begun and may not: the budget would not give them their slot now.
	beyond           map[string]refusal
	drivers, layouts share
}

// refusal is why a node gets no slot: a reason of package api/v1, empty if it gets one, and a message.
type refusal struct{ reason, message string }

// share is what may be unavailable of the nodes with a driver, or with a MIG manager.
type share struct {
	// limit of unavailable nodes.
	limit int
	// size is the number of nodes that the limit is a part of.
	size int
	// unavailable are those of them whose GPUs cannot be used, with the cause, and all holders, with what they do.
	unavailable causes
}

// budgets are those of all groups.
func (c *Cluster) budgets() map[string]*budget {
	budgets := map[string]*budget{}
	for i := range c.Nodes {
		if group := c.Nodes[i].Group; budgets[group] == nil {
			budgets[group] = c.budget(group)
		}
	}
	return budgets
}

func (c *Cluster) budget(group string) *budget {
	rest := c.Rest.group(group)
	b := &budget{
		policy: c.Policies[group], holders: newCauses(nil), beyond: map[string]refusal{},
		drivers: rest.drivers.share(), layouts: rest.layouts.share(),
	}
	var all []beginning
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Group != group {
			continue
		}
		if n.Installs {
			b.drivers.add(n)
		}
		if n.MIG.Partitioned {
			b.layouts.add(n)
		}
		switch doing := c.holds(n); {
		case doing == "":
		case doing == doesBegin:
			all = append(all, beginning{n, &b.drivers, doesBegin, doesGiveBack})
		case doing == doesLayout && c.beginsLayout(n):
			all = append(all, beginning{n, &b.layouts, doesLayout, doesLayout})
		default:
			b.hold(n, doing)
		}
	}
	b.drivers.scale(b.policy)
	b.layouts.scale(b.policy)
	b.admit(all)
	return b
}

// beginning is a node that has a slot and has not begun, the share that the slot is of, and what the node does if it
// may begin and if not.
type beginning struct {
	node             *Node
	of               *share
	admitted, beyond string
}

// admit holds the nodes that have a slot and have not begun, in the order in which they get slots. One that would get
// none now must not begin: the budget was lowered, another node has become unavailable, or another client has written
// the slot. It keeps its place until the slot does not count any more, as a second manager may be about to use it.
func (b *budget) admit(all []beginning) {
	slices.SortStableFunc(all, func(x, y beginning) int {
		return cmp.Or(first(x.of == &b.drivers, y.of == &b.drivers), compare(x.node, y.node))
	})
	var beyond []beginning
	for _, x := range all {
		if refused := b.refuses(x.node, x.of); refused.reason != "" {
			b.beyond[x.node.Name] = refused
			beyond = append(beyond, x)
			continue
		}
		b.hold(x.node, x.admitted)
	}
	for _, x := range beyond {
		b.hold(x.node, x.beyond)
	}
}

// What a node does that has a place in the budget.
const (
	doesUpgrade  = "is being upgraded"
	doesBegin    = "begins its upgrade"
	doesLayout   = "changes its MIG layout"
	doesGiveBack = "gives back its place"
)

// holds returns for what the node has a place in the budget; empty if it has none.
func (c *Cluster) holds(n *Node) string {
	record := n.ownRecord()
	switch {
	case n.upgrading():
		return doesUpgrade
	case n.relayouting(), c.hasLayoutSlot(n):
		return doesLayout
	case !c.Slots.Valid(n), c.isStuck(n):
		return ""
	case record != nil && record.State == StateRequired:
		return doesBegin
	default:
		return doesGiveBack
	}
}

// isStuck reports whether the node could not even give back its slot for long, as the API server refuses its patches.
// It does not begin then. The slot stays, as another manager may be about to use it, but has no place in the budget.
// Once a patch succeeds it gives the slot back, or needs a place like a node that has none, see admit.
func (c *Cluster) isStuck(n *Node) bool {
	return n.Failing != "" && !c.Now.Before(n.FailingSince.Add(2*beginTime))
}

// hold counts the node as one that has a slot, and does this.
func (b *budget) hold(n *Node, doing string) {
	b.holders.set(n.Name, doing)
	b.drivers.unavailable.set(n.Name, doing)
	b.layouts.unavailable.set(n.Name, doing)
}

// share returns the share with these nodes alone.
func (s *restingShare) share() share {
	return share{size: s.size, unavailable: newCauses(s.unavailable)}
}

func (s *share) add(n *Node) {
	s.size++
	if cause := n.unavailable(); cause != "" {
		s.unavailable.set(n.Name, cause)
	}
}

// scale sets the limit. The effective spec has only numbers and percentages; of anything else nothing is allowed.
func (s *share) scale(policy Policy) {
	limit, err := intstr.GetScaledValueFromIntOrPercent(&policy.MaxUnavailable, s.size, true)
	if err == nil {
		s.limit = limit
	}
}

// refuses returns why the node gets no slot of the share now.
func (b *budget) refuses(n *Node, of *share) refusal {
	if b.policy.MaxParallel > 0 && len(b.holders.of) >= b.policy.MaxParallel {
		return refusal{
			v1.ReasonUpgradeQueued, fmt.Sprintf("maxParallelUpgrades %d: %s", b.policy.MaxParallel, b.holders.list()),
		}
	}
	after := of.unavailable.count()
	if of.unavailable.of[n.Name] == "" {
		after++
	}
	if n.brokenByDriver() || after <= of.limit {
		return refusal{}
	}
	return refusal{v1.ReasonUpgradeBudget, fmt.Sprintf("maxUnavailable %s (%d of %d nodes): %s",
		b.policy.MaxUnavailable.String(), of.limit, of.size, cmp.Or(of.unavailable.list(), "allows no upgrade"))}
}

// grant returns the slots as they should be: the valid ones, those of the nodes that are being upgraded, and new ones.
// Nodes that get none have the reason in their turn.
func (c *Cluster) grant(turns []turn, budgets map[string]*budget) Slots {
	slots := Slots{}
	var candidates []int
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if slot, holds := c.held(n); holds {
			slots[n.Name] = slot
		}
		if turns[i].wants {
			candidates = append(candidates, i)
		}
	}
	slices.SortFunc(candidates, func(i, j int) int { return compare(&c.Nodes[i], &c.Nodes[j]) })
	for _, i := range candidates {
		n, b := &c.Nodes[i], budgets[c.Nodes[i].Group]
		progress := turns[i].progress
		refused := c.refuses(n, b)
		if refused.reason == "" {
			slots[n.Name] = Slot{UID: n.UID, Round: n.Record.Round}
			b.hold(n, doesBegin)
			progress.Reason = stateReason(StateRequired)
			continue
		}
		progress.Reason, progress.Message = refused.reason, text.Truncate(refused.message, maxMessage)
		progress.Held = c.SlotsConflict != "" || refused.reason == v1.ReasonUpgradeBudget && len(b.holders.of) == 0
	}
	c.grantLayouts(slots, budgets, turns)
	return slots
}

// refuses returns why the node gets no slot for an upgrade now.
func (c *Cluster) refuses(n *Node, b *budget) refusal {
	switch {
	case c.SlotsConflict != "":
		return refusal{cmp.Or(c.SlotsReason, v1.ReasonConflict), c.SlotsConflict}
	case c.hasLayoutSlot(n) || n.relayouting():
		return refusal{v1.ReasonUpgradeQueued, "the MIG layout of the node is being changed"}
	}
	return b.refuses(n, &b.drivers)
}

// held returns the slot that the node holds already.
func (c *Cluster) held(n *Node) (slot Slot, holds bool) {
	record := n.ownRecord()
	switch {
	case c.Slots.Valid(n) || c.hasLayoutSlot(n):
		return c.Slots[n.Name], true
	case record != nil && record.State.InProgress():
		return Slot{UID: n.UID, Round: record.Round}, true
	case n.relayouting():
		return n.MIG.Drain.slot(), true
	default:
		return Slot{}, false
	}
}

// compare orders nodes as they are upgraded: those that their driver keeps from working, those that a user has
// requested, the others, and those whose last attempt has failed, each by name. So a node that fails again and again
// does not come between.
func compare(a, b *Node) int {
	return cmp.Or(
		first(a.brokenByDriver(), b.brokenByDriver()), first(!a.hasFailed(), !b.hasFailed()),
		first(a.isRequested(), b.isRequested()), cmp.Compare(a.Name, b.Name))
}

// hasFailed reports whether the last attempt to upgrade the node to its target has failed.
func (n *Node) hasFailed() bool {
	record := n.ownRecord()
	return record != nil && record.Failures > 0
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// isRequested reports whether a user has requested the upgrade of the node.
func (n *Node) isRequested() bool {
	record := n.ownRecord()
	return n.Requested || record != nil && record.State == StateRequired && record.Requested
}

// Order returns the names of the nodes that are going to be upgraded, in the order in which they get slots: those whose
// driver is outdated, and those with a request. Nodes that users have excluded, or whose policy requires a request,
// are left out; so are those that are being upgraded.
func Order(nodes []Node, policies map[string]Policy) []string {
	var due []*Node
	for i := range nodes {
		n := &nodes[i]
		wanted := n.isRequested() || n.outdated() && policies[n.Group].Auto
		if wanted && n.Installs && !n.Skip && !n.upgrading() {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, compare)
	names := make([]string, len(due))
	for i, n := range due {
		names[i] = n.Name
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
