package rollout

import (
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Identity identifies the DaemonSet of one variant of nodes. It is decided when the DaemonSet is created and never
// changes, as selectors are immutable.
type Identity struct {
	// Name of the DaemonSet, and App the value of labels.App in its selector.
	Name, App string
}

// AssignIdentities returns the identities of an operand's DaemonSets by variant. live are those of the cluster by name;
// they keep their identities. While there is none, the first variant in alphabetical order gets the base name, which is
// the operand's DaemonSet without a suffix; later ones have a suffix, even if nothing has the base name any more. So
// names do not depend on the order in which nodes move to new variants, or in which a pass sees them move. As with
// NVIDIA's operator, selectors have only labels.App. Each DaemonSet has its own value of that label, so that no
// selector matches the pods of another.
func AssignIdentities(o *operand.Operand, instances []operand.Instance, live map[string]Live) map[string]Identity {
	if o.DaemonSet == "" {
		return nil
	}
	found := map[string]Identity{}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if _, duplicate := found[live[name].Variant]; !duplicate && live[name].Variant != "" {
			found[live[name].Variant] = Identity{Name: name, App: live[name].App}
		}
	}
	available := baseNameAvailable(o, live) && (len(found) == 0 || isAdoptable(o, live))
	for _, instance := range slices.SortedFunc(slices.Values(instances), compareVariants) {
		variant := instance.Variant()
		if _, exists := found[variant]; exists {
			continue
		}
		suffix := instance.Suffix
		if available {
			suffix = ""
		}
		found[variant] = Identity{
			Name: o.DaemonSet + suffix, App: nodeinfo.WithSuffix(o.DaemonSet, strings.TrimPrefix(suffix, "-")),
		}
		available = false
	}
	return found
}

func compareVariants(a, b operand.Instance) int { return strings.Compare(a.Variant(), b.Variant()) }

// baseNameAvailable reports whether no live DaemonSet has the base name, or it as the value of labels.App in its
// selector, but for one to adopt.
func baseNameAvailable(o *operand.Operand, live map[string]Live) bool {
	for name, l := range live {
		if l.App == o.DaemonSet && name != o.DaemonSet || name == o.DaemonSet && l.Variant != "" {
			return false
		}
	}
	return true
}

// isAdoptable reports whether a live DaemonSet has the base name and no variant: NVIDIA's operator has created it, and
// the first new variant adopts it. It may have pods on nodes of all variants, which are handed over before (see the
// controller of ClusterPolicies).
func isAdoptable(o *operand.Operand, live map[string]Live) bool {
	l, exists := live[o.DaemonSet]
	return exists && l.Variant == ""
}

// MayAssignBaseName reports whether the base name may be assigned to a DaemonSet that is not live: a new one, or an
// earlier one of that name of which pods remain. The caller then has to find out whether there are any, see LivePod.
func MayAssignBaseName(o *operand.Operand, instances []operand.Instance, live map[string]Live) bool {
	if o.DaemonSet == "" || !baseNameAvailable(o, live) {
		return false
	}
	known := map[string]bool{}
	for _, l := range live {
		known[l.Variant] = true
	}
	return slices.ContainsFunc(instances, func(i operand.Instance) bool { return !known[i.Variant()] })
}
