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

// budget is what the slots of one group may be.
type budget struct {
	policy Policy
	// limit of unavailable nodes.
	limit int
	// size is the number of nodes that the limit is a part of.
	size int
	// holders have a slot, or are being upgraded. unavailable are these and those whose GPUs cannot be used.
	holders, unavailable map[string]bool
}

func (c *Cluster) budget(group string) *budget {
	b := &budget{policy: c.Policies[group], holders: map[string]bool{}, unavailable: map[string]bool{}}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Group != group {
			continue
		}
		if n.Installs || n.MIG.Partitioned {
			b.size++
		}
		if c.Slots.Valid(n) || n.upgrading() || c.hasLayoutSlot(n) {
			b.holders[n.Name] = true
			b.unavailable[n.Name] = true
		}
		if (n.Installs || n.MIG.Partitioned) && n.unavailable() {
			b.unavailable[n.Name] = true
		}
	}
	// The API admits only numbers and percentages; of anything else nothing is allowed.
	limit, err := intstr.GetScaledValueFromIntOrPercent(&b.policy.MaxUnavailable, b.size, true)
	if err == nil {
		b.limit = limit
	}
	return b
}

// refuses returns why the node gets no slot now; the reason is empty if it gets one.
func (b *budget) refuses(n *Node) (reason, message string) {
	if b.policy.MaxParallel > 0 && len(b.holders) >= b.policy.MaxParallel {
		return v1.ReasonUpgradeQueued, fmt.Sprintf("maxParallelUpgrades %d: %s", b.policy.MaxParallel, upgraded(b.holders))
	}
	after := len(b.unavailable)
	if !b.unavailable[n.Name] {
		after++
	}
	if n.brokenByDriver() || after <= b.limit {
		return "", ""
	}
	return v1.ReasonUpgradeBudget, fmt.Sprintf("maxUnavailable %s (%d of %d nodes): %s", b.policy.MaxUnavailable.String(),
		b.limit, b.size, unavailable(b.unavailable))
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
		if record := n.ownRecord(); c.Slots.Valid(n) || c.hasLayoutSlot(n) {
			slots[n.Name] = c.Slots[n.Name]
		} else if record != nil && record.State.InProgress() {
			slots[n.Name] = Slot{UID: n.UID, Round: record.Round}
		}
		if turns[i].wants {
			candidates = append(candidates, i)
		}
	}
	slices.SortFunc(candidates, func(i, j int) int { return compare(&c.Nodes[i], &c.Nodes[j]) })
	for _, i := range candidates {
		n, b := &c.Nodes[i], budgets[c.Nodes[i].Group]
		progress := turns[i].progress
		reason, message := b.refuses(n)
		if c.hasLayoutSlot(n) {
			reason, message = v1.ReasonUpgradeQueued, "the MIG layout of the node is being changed"
		}
		if reason == "" {
			slots[n.Name] = Slot{UID: n.UID, Round: n.Record.Round}
			b.holders[n.Name], b.unavailable[n.Name] = true, true
			progress.Reason = stateReason(StateRequired)
			continue
		}
		progress.Reason, progress.Message = reason, text.Truncate(message, maxMessage)
		progress.Held = reason == v1.ReasonUpgradeBudget && len(b.holders) == 0
	}
	c.grantLayouts(slots, budgets, turns)
	return slots
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
