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

// daemonSetIdentity is what a DaemonSet of an operand with one for each kind of node is known by. Name and App are decided once,
// when the DaemonSet is made: the API server lets nobody change a selector.
type daemonSetIdentity struct {
	// Name of the DaemonSet, and App the value of labels.App in its selector.
	Name, App string
}

// assignIdentities returns the identities of an operand's DaemonSets by the kinds of nodes that they are for. live are those of
// the cluster by name; one that is there keeps its daemonSetIdentity. The name of the operand itself goes to the first kind by
// name, where nothing in the cluster has it, and its selector is that of NVIDIA's operator: labels.App alone. So every
// other DaemonSet has another value of that label, and no selector matches the pods of two.
func assignIdentities(o *operand.Operand, instances []operand.Instance, live map[string]Live) map[string]daemonSetIdentity {
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
		kind := instance.Kind()
		if _, exists := found[kind]; exists {
			continue
		}
		suffix := instance.Suffix
		if available {
			suffix = ""
		}
		found[kind] = daemonSetIdentity{
			Name: o.DaemonSet + suffix, App: nodeinfo.WithEnd(o.DaemonSet, strings.TrimPrefix(suffix, "-")),
		}
		available = false
	}
	return found
}

func compareVariants(a, b operand.Instance) int { return strings.Compare(a.Kind(), b.Kind()) }

// baseNameAvailable reports whether no DaemonSet has the operand's name, or a selector that matches the pods of the one that will.
// One of that name without a kind was made by another operator. Its pods may be on nodes of all kinds, so a driver,
// which is not to leave its nodes, does not take it over.
func baseNameAvailable(o *operand.Operand, live map[string]Live) bool {
	for name, l := range live {
		isForeign := name == o.DaemonSet && l.Variant == "" && !o.UpdatesOnDelete
		if !isForeign && (name == o.DaemonSet || l.App == o.DaemonSet) {
			return false
		}
	}
	return true
}

// MayAssignBaseName reports whether the name of a step's operand may go to a DaemonSet that is not among these, so that it matters
// whether pods of an earlier one are left.
func MayAssignBaseName(o *operand.Operand, instances []operand.Instance, live map[string]Live) bool {
	if o.DaemonSet == "" || !baseNameAvailable(o, live) {
		return false
	}
	known := map[string]bool{}
	for _, l := range live {
		known[l.Variant] = true
	}
	return slices.ContainsFunc(instances, func(i operand.Instance) bool { return !known[i.Kind()] })
}

// variantOf is the kind of nodes that pods with these labels are for.
func variantOf(pod map[string]string) string {
	return operand.Kind(pod[labels.Pool], pod[labels.Runtime], pod[labels.NodePool])
}

// LivePod is what render needs to know where nothing but a pod is left of a DaemonSet: the kind of its nodes, which has
// that name still.
func LivePod(pod *corev1.Pod) Live {
	return Live{Variant: variantOf(pod.Labels), App: pod.Labels[labels.App]}
}

// variantLabels are those that were in selectors before the value of labels.App told DaemonSets apart.
func variantLabels() []string { return []string{labels.Pool, labels.Runtime, labels.NodePool} }

// keepVariantSelector keeps the selector of a DaemonSet that was made when labels of the kind were in it.
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

// anchor has the DaemonSet of a kind select nodes by several terms in place of one selector, so that no node is left that
// has lost some of its labels. A DaemonSet of a release without anchors gets them too, and its pods are left as they are.
func (r *renderer) selectByAnchor(ds *appsv1.DaemonSet, digest string) {
	pod := &ds.Spec.Template.Spec
	nodes := nodeSelection{
		anchor: corev1.NodeSelectorRequirement{
			Key: r.step.Operand.AnchorLabel(), Operator: corev1.NodeSelectorOpIn, Values: []string{r.instance.Kind()},
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

// nodeSelection is the choice of the nodes of a kind.
type nodeSelection struct {
	// anchor is the requirement of the node's anchor.
	anchor corev1.NodeSelectorRequirement
	// exact are the other labels of the node.
	exact map[string]string
	// without is a label that the node must not have; empty for none.
	excluded string
}

// terms are the ORed terms: all labels, whatever the anchor is; or the anchor, and each label as it is to be or absent. Any
// other value of a label is somebody's decision, and takes the pod off the node. A node without any of these labels is
// never selected.
func (s nodeSelection) terms() []corev1.NodeSelectorTerm {
	keys := slices.Sorted(maps.Keys(s.exact))
	all := s.term(keys, 0)
	if s.excluded != "" {
		// The node may be one of another kind that has lost the label that tells so.
		all.MatchExpressions = append(all.MatchExpressions, isAbsent(s.anchor.Key))
	}
	terms := []corev1.NodeSelectorTerm{all}
	for missing := range 1 << len(keys) {
		if missing == 0 && s.excluded == "" {
			continue // The first term has these nodes.
		}
		term := s.term(keys, missing)
		term.MatchExpressions = append([]corev1.NodeSelectorRequirement{s.anchor}, term.MatchExpressions...)
		terms = append(terms, term)
	}
	return terms
}

// term requires all these labels, where the bit of a lost one is set that it is absent.
func (s nodeSelection) term(keys []string, missing int) corev1.NodeSelectorTerm {
	var term corev1.NodeSelectorTerm
	for i, key := range keys {
		requirement := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{s.exact[key]}}
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
