package upgrade

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// Valid reports whether the slot of the node for its upgrade counts: it is for the node's current or next round, and
// that round has not ended. Once a slot does not count it never counts again, so a stale view of the node can only
// count too many.
func (s Slots) Valid(n *Node) bool {
	slot, granted := s[n.Name]
	if !granted || slot.UID != n.UID || slot.Layout != "" {
		return false
	}
	record := n.ownRecord()
	switch {
	case record == nil:
		return true
	case record.Round != slot.Round:
		return record.Round < slot.Round
	default:
		return record.State == StateRequired || record.State.InProgress()
	}
}

// upgrading reports whether an upgrade has begun on the node, by this operator or by NVIDIA's.
func (n *Node) upgrading() bool { return n.currentState().InProgress() }

// budget is what the slots of one group may be. Those for drivers and for MIG layouts have the same holders, and each a
// share of the nodes that they are for.
type budget struct {
	policy Policy
	// holders have a slot, or are being upgraded.
	holders          map[string]bool
	drivers, layouts share
}

// share is what may be unavailable of the nodes with a driver, or with a MIG manager.
type share struct {
	// limit of unavailable nodes.
	limit int
	// size is the number of nodes that the limit is a part of.
	size int
	// unavailable are those of them whose GPUs cannot be used, and all holders.
	unavailable map[string]bool
}

func (c *Cluster) budget(group string) *budget {
	b := &budget{policy: c.Policies[group], holders: map[string]bool{}}
	b.drivers.unavailable, b.layouts.unavailable = map[string]bool{}, map[string]bool{}
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
		if c.Slots.Valid(n) || n.upgrading() || n.relayouting() || c.hasLayoutSlot(n) {
			b.hold(n)
		}
	}
	b.drivers.scale(b.policy)
	b.layouts.scale(b.policy)
	return b
}

// hold counts the node as one that has a slot.
func (b *budget) hold(n *Node) {
	b.holders[n.Name], b.drivers.unavailable[n.Name], b.layouts.unavailable[n.Name] = true, true, true
}

func (s *share) add(n *Node) {
	s.size++
	if n.unavailable() {
		s.unavailable[n.Name] = true
	}
}

// scale sets the limit. The API admits only numbers and percentages; of anything else nothing is allowed.
func (s *share) scale(policy Policy) {
	limit, err := intstr.GetScaledValueFromIntOrPercent(&policy.MaxUnavailable, s.size, true)
	if err == nil {
		s.limit = limit
	}
}

// refuses returns why the node gets no slot of the share now; the reason is empty if it gets one.
func (b *budget) refuses(n *Node, of *share) (reason, message string) {
	if b.policy.MaxParallel > 0 && len(b.holders) >= b.policy.MaxParallel {
		return v1.ReasonUpgradeQueued, fmt.Sprintf("maxParallelUpgrades %d: %s", b.policy.MaxParallel, upgraded(b.holders))
	}
	after := len(of.unavailable)
	if !of.unavailable[n.Name] {
		after++
	}
	if n.brokenByDriver() || after <= of.limit {
		return "", ""
	}
	return v1.ReasonUpgradeBudget, fmt.Sprintf("maxUnavailable %s (%d of %d nodes): %s", b.policy.MaxUnavailable.String(),
		of.limit, of.size, unavailable(of.unavailable))
}

func upgraded(nodes map[string]bool) string {
	if len(nodes) == 1 {
		return list(sortedKeys(nodes)) + " is upgraded"
	}
	return list(sortedKeys(nodes)) + " are upgraded"
}

func unavailable(nodes map[string]bool) string {
	switch len(nodes) {
	case 0:
		return "allows no upgrade"
	case 1:
		return list(sortedKeys(nodes)) + " is unavailable"
	default:
		return fmt.Sprintf("%d are unavailable, %s", len(nodes), list(sortedKeys(nodes)))
	}
}

// grant returns the slots as they should be: the valid ones, those of the nodes that are being upgraded, and new ones.
// Nodes that get none have the reason in their turn.
func (c *Cluster) grant(turns []turn) Slots {
	slots := Slots{}
	budgets := map[string]*budget{}
	var candidates []int
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if budgets[n.Group] == nil {
			budgets[n.Group] = c.budget(n.Group)
		}
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
		reason, message := c.refuses(n, b)
		if reason == "" {
			slots[n.Name] = Slot{UID: n.UID, Round: n.Record.Round}
			b.hold(n)
			progress.Reason = stateReason(StateRequired)
			continue
		}
		progress.Reason, progress.Message = reason, text.Truncate(message, maxMessage)
		progress.Held = reason == v1.ReasonConflict || reason == v1.ReasonUpgradeBudget && len(b.holders) == 0
	}
	c.grantLayouts(slots, budgets, turns)
	return slots
}

// refuses returns why the node gets no slot for an upgrade now; the reason is empty if it gets one.
func (c *Cluster) refuses(n *Node, b *budget) (reason, message string) {
	switch {
	case c.SlotsConflict != "":
		return v1.ReasonConflict, c.SlotsConflict
	case c.hasLayoutSlot(n) || n.relayouting():
		return v1.ReasonUpgradeQueued, "the MIG layout of the node is being changed"
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
// requested, and the others, each by name.
func compare(a, b *Node) int {
	return cmp.Or(
		first(a.brokenByDriver(), b.brokenByDriver()), first(a.isRequested(), b.isRequested()), cmp.Compare(a.Name, b.Name))
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
