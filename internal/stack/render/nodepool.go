package render

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// labelNodePool labels the DaemonSet of a node pool and its pods, to distinguish them from others of the operand.
func (r *renderer) labelNodePool(ds *appsv1.DaemonSet) {
	nodePool := r.instance.NodePool
	if nodePool == "" {
		return
	}
	ds.Labels[labels.NodePool] = nodePool
	ds.Spec.Template.Labels[labels.NodePool] = nodePool
	if r.step.Operand.DaemonSet == "" {
		ds.Spec.Selector.MatchLabels[labels.NodePool] = nodePool
	}
}

// excludeNodePools makes the common DaemonSet of an operand exclude the nodes that get it from a node pool. It does so
// even if there are no node pools, so that adding one does not change the DaemonSet.
func (r *renderer) excludeNodePools(ds *appsv1.DaemonSet) {
	if key := r.step.Operand.NodePoolLabel(); key != "" && r.instance.NodePool == "" {
		excludeLabel(&ds.Spec.Template.Spec, key)
	}
}

// excludeLabel excludes nodes that have the label.
func excludeLabel(pod *corev1.PodSpec, key string) {
	requireNodeTerms(pod, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{isAbsent(key)}}})
}

// requireNodeTerms requires that a node matches one of the terms.
func requireNodeTerms(pod *corev1.PodSpec, terms []corev1.NodeSelectorTerm) {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	pod.Affinity.NodeAffinity = &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}
}
