package render

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// labelNodePool sets the DaemonSet of a node pool, and its pods, apart from the others of its operand.
func (r *renderer) labelNodePool(ds *appsv1.DaemonSet) {
	pool := r.instance.NodePool
	if pool == "" {
		return
	}
	ds.Labels[labels.NodePool] = pool
	ds.Spec.Template.Labels[labels.NodePool] = pool
	if r.step.Operand.DaemonSet == "" {
		ds.Spec.Selector.MatchLabels[labels.NodePool] = pool
	}
}

// excludeNodePools has the common DaemonSet of an operand leave out the nodes that get it from a node pool. It does so
// from the beginning, whether there are pools or not, so that a pool that comes changes nothing of it.
//
// A DaemonSet of a release that knew no pools is left as it is while its pods are as wanted: to add this would
// replace them all for nothing. Where a pool comes then, it is added, and the pods are left as they are until
// something changes that matters to them.
func (r *renderer) excludeNodePools(ds *appsv1.DaemonSet, digest string) {
	key := r.step.Operand.NodePoolLabel()
	if key == "" || r.instance.NodePool != "" {
		return
	}
	live := r.live[ds.Name]
	unchanged := live.TemplateDigest == digest
	if unchanged && !live.ExcludesNodePools && !r.hasNodePoolInstances() {
		return
	}
	excludeLabel(&ds.Spec.Template.Spec, key)
	if unchanged && (!live.ExcludesNodePools || live.RolloutSuspended) {
		suspendRollout(ds)
	}
}

// suspendRollout leaves the pods as they are, though the template has changed: by nothing that matters to them.
func suspendRollout(ds *appsv1.DaemonSet) {
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		annotate(&ds.ObjectMeta, labels.Unrolled, labels.True)
	}
}

// hasNodePoolInstances tells whether a node pool has DaemonSets of this operand.
func (r *renderer) hasNodePoolInstances() bool {
	for _, pool := range r.plan.NodePools {
		if r.step.Operand.VariesIn(pool.NodePoolSpec) {
			return true
		}
	}
	return false
}

// without requires of a node that it has no such label.
func excludeLabel(pod *corev1.PodSpec, key string) {
	requireNodeTerms(pod, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{isAbsent(key)}}})
}

// require requires of a node that it fits one of the terms.
func requireNodeTerms(pod *corev1.PodSpec, terms []corev1.NodeSelectorTerm) {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	pod.Affinity.NodeAffinity = &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}
}

// excludesNodePools reports whether a template has what excludeNodePools adds.
func excludesNodePools(pod *corev1.PodSpec) bool {
	return requiresLabelPrefix(pod, labels.NodePoolPrefix)
}

// requires reports whether a template requires anything of a node's labels with the prefix, besides its nodeSelector.
func requiresLabelPrefix(pod *corev1.PodSpec, prefix string) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return strings.HasPrefix(e.Key, prefix)
		})
	})
}
