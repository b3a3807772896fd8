package migrate

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Nodes are those that NVIDIA's driver DaemonSets have served and one DaemonSet is to keep.
type Nodes struct {
	// Deploy is the deploy label of the operand, and Anchor the key of its anchor label.
	Deploy, Anchor string
	// Hostnames are the values of the label kubernetes.io/hostname of the nodes; empty for any.
	Hostnames []string
}

// Keep makes the DaemonSet also select these nodes while they have no label of a variant. The DaemonSet controller may
// see the DaemonSet earlier than the labels, and would delete the pods of nodes that do not match.
func (n Nodes) Keep(ds *appsv1.DaemonSet) {
	required := ds.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = append(required.NodeSelectorTerms, n.term())
}

// AreKeptBy reports whether Keep has changed the DaemonSet, for these nodes or others.
func (n Nodes) AreKeptBy(ds *appsv1.DaemonSet) bool {
	affinity := ds.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		absent := 0
		for _, requirement := range term.MatchExpressions {
			if requirement.Operator == corev1.NodeSelectorOpDoesNotExist &&
				(requirement.Key == n.Anchor || requirement.Key == labels.Pool) {
				absent++
			}
		}
		return absent == 2
	})
}

func (n Nodes) term() corev1.NodeSelectorTerm {
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		in(n.Deploy, labels.True),
		{Key: labels.Pool, Operator: corev1.NodeSelectorOpDoesNotExist},
		{Key: n.Anchor, Operator: corev1.NodeSelectorOpDoesNotExist},
	}}
	if len(n.Hostnames) > 0 {
		term.MatchExpressions = append(term.MatchExpressions, in(corev1.LabelHostname, n.Hostnames...))
	}
	return term
}
