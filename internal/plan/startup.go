package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// DesiredTaint is what is to become of a node's start-up taints.
type DesiredTaint int

const (
	// KeepTaints: the node is on its way, and what is there stays.
	KeepTaints DesiredTaint = iota
	// RemoveTaints: the GPUs can be used.
	RemoveTaints
	// RestoreTaints: the GPUs could be used, and have failed for good.
	RestoreTaints
	// ReleaseTaints: the node is the operator's no more. What the operator has put there goes, and what others
	// have is theirs.
	ReleaseTaints
)

// Taints are those of a node, and which of them the operator has put back, as KEY:EFFECT.
type Taints struct {
	All      []corev1.Taint
	Restored []string
}

// StartupTaints is what becomes of the taints of a node. What is named in no spec and was not put back by the
// operator stays, in its place. Taints are put back where the spec says so, and only with the effect NoSchedule:
// the others evict pods, or keep none away.
func StartupTaints(spec v1.NodeStartupSpec, now Taints, desired DesiredTaint) Taints {
	var after Taints
	for _, taint := range now.All {
		named, back := IsStartupTaint(spec.Taints, taint), slices.Contains(now.Restored, taintID(taint))
		switch {
		case desired == RemoveTaints && (named || back), desired == ReleaseTaints && back:
			continue
		case back && desired != RemoveTaints && !(named && returns(spec, taint.Effect)):
			// The spec asks for it no longer.
			continue
		case back:
			after.Restored = append(after.Restored, taintID(taint))
		}
		after.All = append(after.All, taint)
	}
	if desired == RestoreTaints {
		after.put(spec)
	}
	slices.Sort(after.Restored)
	return after
}

// put adds the taints that are to come back.
func (t *Taints) put(spec v1.NodeStartupSpec) {
	for _, specified := range spec.Taints {
		taint := corev1.Taint{Key: specified.Key, Value: string(specified.Value), Effect: specified.Effect}
		exists := func(have corev1.Taint) bool { return taintID(have) == taintID(taint) }
		if returns(spec, taint.Effect) && !slices.ContainsFunc(t.All, exists) {
			t.All, t.Restored = append(t.All, taint), append(t.Restored, taintID(taint))
		}
	}
}

// IsStartupTaint tells whether the taint is one of those of start-up.
func IsStartupTaint(startup []v1.StartupTaint, taint corev1.Taint) bool {
	return slices.ContainsFunc(startup, func(named v1.StartupTaint) bool {
		return named.Key == taint.Key && named.Effect == taint.Effect && (named.Value == "" || string(named.Value) == taint.Value)
	})
}

func returns(spec v1.NodeStartupSpec, effect corev1.TaintEffect) bool {
	return spec.OnFailure == v1.OnFailureTaint && effect == corev1.TaintEffectNoSchedule
}

// taintID is what tells two taints of a node apart.
func taintID(taint corev1.Taint) string { return taint.Key + ":" + string(taint.Effect) }

// TaintDifference are what tells the taints of the first list apart that the second one lacks, in words.
func TaintDifference(all, without []corev1.Taint) string {
	var names []string
	for _, taint := range all {
		if !slices.ContainsFunc(without, func(other corev1.Taint) bool { return taintID(other) == taintID(taint) }) {
			names = append(names, taintID(taint))
		}
	}
	return strings.Join(names, ", ")
}
