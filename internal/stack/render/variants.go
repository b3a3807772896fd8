package render

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// keepPartOf keeps the second label in the selector of a DaemonSet that NVIDIA's operator has created with it:
// selectors cannot be changed, and a new DaemonSet would end all pods at once.
func (r *renderer) keepPartOf(ds *appsv1.DaemonSet) {
	if value := r.live[ds.Name].PartOfInSelector; value != "" {
		ds.Spec.Selector.MatchLabels[partOfLabel] = value
		ds.Spec.Template.Labels[partOfLabel] = value
	}
}

// selectByAnchor replaces the node selector of a variant's DaemonSet by several terms, so that a node that has lost
// some of its labels keeps its pod.
func (r *renderer) selectByAnchor(ds *appsv1.DaemonSet) {
	pod := &ds.Spec.Template.Spec
	nodes := nodeSelection{
		anchor: corev1.NodeSelectorRequirement{
			Key: r.step.Operand.AnchorLabel(), Operator: corev1.NodeSelectorOpIn, Values: []string{r.instance.Variant()},
		},
		exact: pod.NodeSelector,
	}
	if r.instance.NodePool == "" {
		nodes.excluded = r.step.Operand.NodePoolLabel()
	}
	pod.NodeSelector = nil
	requireNodeTerms(pod, nodes.terms())
}

// nodeSelection selects the nodes of a variant.
type nodeSelection struct {
	// anchor requires the node's anchor label.
	anchor corev1.NodeSelectorRequirement
	// exact are the other labels that the node has.
	exact map[string]string
	// excluded is a label that the node must not have; empty for none.
	excluded string
}

// terms returns the ORed terms: either all labels, with or without the anchor; or the anchor, and each label either
// with its value or absent. Any other value of a label was set on purpose, and removes the pod from the node. A node
// without any of these labels is never selected.
func (s nodeSelection) terms() []corev1.NodeSelectorTerm {
	keys := slices.Sorted(maps.Keys(s.exact))
	all := s.term(keys, 0)
	if s.excluded != "" {
		// The node may be of another variant and have lost the excluded label.
		all.MatchExpressions = append(all.MatchExpressions, isAbsent(s.anchor.Key))
	}
	terms := []corev1.NodeSelectorTerm{all}
	for missing := range 1 << len(keys) {
		if missing == 0 && s.excluded == "" {
			continue // The first term selects these nodes.
		}
		term := s.term(keys, missing)
		term.MatchExpressions = append([]corev1.NodeSelectorRequirement{s.anchor}, term.MatchExpressions...)
		terms = append(terms, term)
	}
	return terms
}

// term requires all these labels. A bit that is set in missing requires the absence of that label instead.
func (s nodeSelection) term(keys []string, missing int) corev1.NodeSelectorTerm {
	var term corev1.NodeSelectorTerm
	for i, key := range keys {
		requirement := corev1.NodeSelectorRequirement{
			Key:      key,
			Operator: corev1.NodeSelectorOpIn,
			Values:   []string{s.exact[key]},
		}
		if missing&(1<<i) != 0 {
			requirement = isAbsent(key)
		}
		term.MatchExpressions = append(term.MatchExpressions, requirement)
	}
	if s.excluded != "" {
		term.MatchExpressions = append(term.MatchExpressions, isAbsent(s.excluded))
	}
	return term
}

func isAbsent(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
}
