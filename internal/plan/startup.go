package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// TaintWish is what is to become of a node's start-up taints.
type TaintWish int

const (
	// KeepTaints: the node is on its way, and what is there stays.
	KeepTaints TaintWish = iota
	// DropTaints: the GPUs can be used.
	DropTaints
	// PutTaints: the GPUs could be used, and have failed for good.
	PutTaints
	// ReleaseTaints: the node is the operator's no more. What the operator has put there goes, and what others
	// have is theirs.
	ReleaseTaints
)

// Taints are those of a node, and which of them the operator has put back, as KEY:EFFECT.
type Taints struct {
	All  []corev1.Taint
	Back []string
}

// StartupTaints is what becomes of the taints of a node. What is named in no spec and was not put back by the
// operator stays, in its place. Taints are put back where the spec says so, and only with the effect NoSchedule:
// the others evict pods, or keep none away.
func StartupTaints(spec v1.NodeStartupSpec, now Taints, wish TaintWish) Taints {
	var after Taints
	for _, taint := range now.All {
		named, back := Names(spec.Taints, taint), slices.Contains(now.Back, taintID(taint))
		switch {
		case wish == DropTaints && (named || back), wish == ReleaseTaints && back:
			continue
		case back && wish != DropTaints && !(named && returns(spec, taint.Effect)):
			// The spec asks for it no longer.
			continue
		case back:
			after.Back = append(after.Back, taintID(taint))
		}
		after.All = append(after.All, taint)
	}
	if wish == PutTaints {
		after.put(spec)
	}
	slices.Sort(after.Back)
	return after
}

// put adds the taints that are to come back.
func (t *Taints) put(spec v1.NodeStartupSpec) {
	for _, wanted := range spec.Taints {
		taint := corev1.Taint{Key: wanted.Key, Value: string(wanted.Value), Effect: wanted.Effect}
		isThere := func(have corev1.Taint) bool { return taintID(have) == taintID(taint) }
		if returns(spec, taint.Effect) && !slices.ContainsFunc(t.All, isThere) {
			t.All, t.Back = append(t.All, taint), append(t.Back, taintID(taint))
		}
	}
}

// Names tells whether the taint is one of those of start-up.
func Names(startup []v1.StartupTaint, taint corev1.Taint) bool {
	return slices.ContainsFunc(startup, func(named v1.StartupTaint) bool {
		return named.Key == taint.Key && named.Effect == taint.Effect && (named.Value == "" || string(named.Value) == taint.Value)
	})
}

func returns(spec v1.NodeStartupSpec, effect corev1.TaintEffect) bool {
	return spec.OnFailure == v1.OnFailureTaint && effect == corev1.TaintEffectNoSchedule
}

// taintID is what tells two taints of a node apart.
func taintID(taint corev1.Taint) string { return taint.Key + ":" + string(taint.Effect) }

// TaintNames are what tells the taints of the first list apart that the second one lacks, in words.
func TaintNames(all, without []corev1.Taint) string {
	var names []string
	for _, taint := range all {
		if !slices.ContainsFunc(without, func(other corev1.Taint) bool { return taintID(other) == taintID(taint) }) {
			names = append(names, taintID(taint))
		}
	}
	return strings.Join(names, ", ")
}
