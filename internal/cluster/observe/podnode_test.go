package observe_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// The DaemonSet controller names the node of a new pod in a field selector of its node affinity.
func TestPodNode(t *testing.T) {
	field := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	for name, test := range map[string]struct {
		node   string
		fields []corev1.NodeSelectorRequirement
		want   string
	}{
		"scheduled":          {"a", []corev1.NodeSelectorRequirement{field("metadata.name", "b")}, "a"},
		"created for a node": {"", []corev1.NodeSelectorRequirement{field("metadata.name", "b")}, "b"},
		"after another field": {
			"", []corev1.NodeSelectorRequirement{field("spec.x", "c"), field("metadata.name", "b")}, "b",
		},
		"one of several nodes":  {"", []corev1.NodeSelectorRequirement{field("metadata.name", "b", "c")}, ""},
		"without a node's name": {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: test.node, Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: test.fields}},
				}},
			}}}
			NewWithT(t).Expect(observe.PodNode(pod)).To(Equal(test.want))
		})
	}
	NewWithT(t).Expect(observe.PodNode(&corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{}}})).To(BeEmpty())
}
