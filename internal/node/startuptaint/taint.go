package startuptaint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Action is what is to be done with a node's start-up taints.
type Action int

const (
	// Keep: the node is starting, and its taints stay.
	Keep Action = iota
	// Remove: the GPUs can be used.
	Remove
	// Restore: the GPUs could be used, and have failed for good.
	Restore
	// RestoreAfterBoot: the node has booted since its GPUs could last be used.
	RestoreAfterBoot
	// Release: the operator no longer manages the node. Taints that it added are removed, all others stay.
	Release
)

// Taints of a node, and those of them that the operator has added again, as KEY:EFFECT.
type Taints struct {
	All      []corev1.Taint
	Restored []string
}

// Next returns the new taints of a node. Taints that the spec does not name and the operator did not add stay,
// in their place. Taints are added again after a boot, and after a failure if the spec requires it. Only those with the
// effect NoSchedule are: the other effects evict pods, or do not keep them off.
func Next(spec v1.NodeStartupSpec, now Taints, action Action) Taints {
	var after Taints
	for _, taint := range now.All {
		named, added := Is(spec.Taints, taint), slices.Contains(now.Restored, taintID(taint))
		if drops(spec, taint, action, named, added) {
			continue
		}
		if added {
			after.Restored = append(after.Restored, taintID(taint))
		}
		after.All = append(after.All, taint)
	}
	if action == Restore || action == RestoreAfterBoot {
		after.restore(spec, action)
	}
	slices.Sort(after.Restored)
	return after
}

// drops reports whether a taint of the node is removed. named: the spec names it. added: the operator has added it.
func drops(spec v1.NodeStartupSpec, taint corev1.Taint, action Action, named, added bool) bool {
	switch {
	case action == Remove:
		return named || added
	case !added:
		return false
	}
	// Otherwise the spec no longer requires it.
	return action == Release || !named || !mustRestore(spec, taint.Effect, action)
}

// restore adds the missing taints that the spec requires for this action.
func (t *Taints) restore(spec v1.NodeStartupSpec, action Action) {
	for _, specified := range spec.Taints {
		taint := corev1.Taint{Key: specified.Key, Value: string(specified.Value), Effect: specified.Effect}
		exists := func(have corev1.Taint) bool { return taintID(have) == taintID(taint) }
		if mustRestore(spec, taint.Effect, action) && !slices.ContainsFunc(t.All, exists) {
			t.All, t.Restored = append(t.All, taint), append(t.Restored, taintID(taint))
		}
	}
}

// Is reports whether the taint is one of the start-up taints.
func Is(startup []v1.StartupTaint, taint corev1.Taint) bool {
	return slices.ContainsFunc(startup, func(named v1.StartupTaint) bool {
		return named.Key == taint.Key && named.Effect == taint.Effect &&
			(named.Value == "" || string(named.Value) == taint.Value)
	})
}

func mustRestore(spec v1.NodeStartupSpec, effect corev1.TaintEffect, action Action) bool {
	return isRestorable(effect) && (action == RestoreAfterBoot || spec.OnFailure == v1.OnFailureTaint)
}

// HasRestorable reports whether the spec names a taint that is added again after a boot.
func HasRestorable(spec v1.NodeStartupSpec) bool {
	return slices.ContainsFunc(spec.Taints, func(taint v1.StartupTaint) bool { return isRestorable(taint.Effect) })
}

func isRestorable(effect corev1.TaintEffect) bool { return effect == corev1.TaintEffectNoSchedule }

// taintID identifies a taint of a node, as KEY:EFFECT.
func taintID(taint corev1.Taint) string { return taint.Key + ":" + string(taint.Effect) }

// Difference returns the taints of the first list that are missing in the second, as comma-separated KEY:EFFECT.
func Difference(all, without []corev1.Taint) string {
	var names []string
	for _, taint := range all {
		if !slices.ContainsFunc(without, func(other corev1.Taint) bool { return taintID(other) == taintID(taint) }) {
			names = append(names, taintID(taint))
		}
	}
	return strings.Join(names, ", ")
}
