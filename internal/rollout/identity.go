package rollout

import (
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Identity identifies the DaemonSet of one variant of nodes. It is decided when the DaemonSet is created and never
// changes, as selectors are immutable.
type Identity struct {
	// Name of the DaemonSet, and App the value of labels.App in its selector.
	Name, App string
}

// AssignIdentities returns the identities of an operand's DaemonSets by variant. live are those of the cluster by name;
// they keep their identities. If no live DaemonSet has the base name, which is the operand's DaemonSet without a
// suffix, the first new variant in alphabetical order gets it. As with NVIDIA's operator, selectors have only
// labels.App. Each DaemonSet has its own value of that label, so that no selector matches the pods of another.
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
	available := baseNameAvailable(o, live)
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
// selector. One with the base name and no variant was created by NVIDIA's operator: the first variant adopts it. It may
// have pods on nodes of all variants, which are handed over before (see the controller of ClusterPolicies).
func baseNameAvailable(o *operand.Operand, live map[string]Live) bool {
	for name, l := range live {
		adoptable := name == o.DaemonSet && l.Variant == ""
		if !adoptable && (name == o.DaemonSet || l.App == o.DaemonSet) {
			return false
		}
	}
	return true
}

// MayAssignBaseName reports whether the base name may be assigned to a new DaemonSet. The caller then has to find out
// whether pods of an earlier DaemonSet of that name remain, see LivePod.
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
