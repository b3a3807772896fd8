package render

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// daemonSetIdentity identifies the DaemonSet of one variant of nodes. It is decided when the DaemonSet is created and
// never changes, as selectors are immutable.
type daemonSetIdentity struct {
	// Name of the DaemonSet, and App the value of labels.App in its selector.
	Name, App string
}

// assignIdentities returns the identities of an operand's DaemonSets by variant. live are those of the cluster by name;
// they keep their identities. If no live DaemonSet has the base name, which is the operand's DaemonSet without a
// suffix, the first new variant in alphabetical order gets it. As with NVIDIA's operator, selectors have only
// labels.App. Each DaemonSet has its own value of that label, so that no selector matches the pods of another.
func assignIdentities(
	o *operand.Operand, instances []operand.Instance, live map[string]Live,
) map[string]daemonSetIdentity {
	if o.DaemonSet == "" {
		return nil
	}
	found := map[string]daemonSetIdentity{}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if _, duplicate := found[live[name].Variant]; !duplicate && live[name].Variant != "" {
			found[live[name].Variant] = daemonSetIdentity{Name: name, App: live[name].App}
		}
	}
	available := baseNameAvailable(o, live)
	for _, instance := range slices.SortedFunc(slices.Values(instances), compareVariants) {
		kind := instance.Variant()
		if _, exists := found[kind]; exists {
			continue
		}
		suffix := instance.Suffix
		if available {
			suffix = ""
		}
		found[kind] = daemonSetIdentity{
			Name: o.DaemonSet + suffix, App: nodeinfo.WithSuffix(o.DaemonSet, strings.TrimPrefix(suffix, "-")),
		}
		available = false
	}
	return found
}

func compareVariants(a, b operand.Instance) int { return strings.Compare(a.Variant(), b.Variant()) }

// baseNameAvailable reports whether no live DaemonSet has the base name, or it as the value of labels.App in its
// selector. One with the base name and no variant was created by another operator. It may have pods on nodes of all
// variants, so a driver DaemonSet does not adopt it: that would remove drivers from nodes.
func baseNameAvailable(o *operand.Operand, live map[string]Live) bool {
	for name, l := range live {
		adoptable := name == o.DaemonSet && l.Variant == "" && !o.UpdatesOnDelete
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

// variantOf returns the variant of nodes that pods with these labels are for.
func variantOf(pod map[string]string) string {
	return operand.Variant(pod[labels.Pool], pod[labels.Runtime], pod[labels.NodePool])
}

// LivePod returns what render needs of a deleted DaemonSet of which a pod remains: its variant keeps the name.
func LivePod(pod *corev1.Pod) Live {
	return Live{Variant: variantOf(pod.Labels), App: pod.Labels[labels.App]}
}

// variantLabels are the labels that selectors had in releases in which all DaemonSets had the same value of labels.App.
func variantLabels() []string { return []string{labels.Pool, labels.Runtime, labels.NodePool} }

// keepVariantSelector keeps the labels of the variant in the selector of a DaemonSet that was created with them.
func (r *renderer) keepVariantSelector(ds *appsv1.DaemonSet) {
	if !r.live[ds.Name].VariantInSelector {
		return
	}
	for _, key := range variantLabels() {
		if value, exists := ds.Spec.Template.Labels[key]; exists {
			ds.Spec.Selector.MatchLabels[key] = value
		}
	}
}

// selectByAnchor replaces the node selector of a variant's DaemonSet by several terms, so that a node that has lost
// some of its labels keeps its pod. This is also applied to DaemonSets of a release without anchors; their pods are
// kept.
func (r *renderer) selectByAnchor(ds *appsv1.DaemonSet, digest string) {
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
	live := r.live[ds.Name]
	if live.TemplateDigest == digest && (!live.SelectsByAnchor || live.RolloutSuspended) {
		suspendRollout(ds)
	}
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

// selectsByAnchor reports whether a template selects nodes by their anchor.
func selectsByAnchor(pod *corev1.PodSpec) bool { return requiresLabelPrefix(pod, labels.AnchorPrefix) }
