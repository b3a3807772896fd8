package nodemarks

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// HandBack returns what removes from the node all that means nothing to NVIDIA's operator: the operator's own labels
// and annotations, its conditions and its taints. What NVIDIA's operator reads stays, such as the deploy labels of its
// operands, the discovery labels and the MIG layout: without them it would remove its operands from the node.
func HandBack(node *corev1.Node) *Removal {
	r := &Removal{
		Metadata:   Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}},
		Conditions: Conditions(node), node: node,
	}
	for key, value := range node.Labels {
		// Any other value of a deploy label is a user's.
		if labels.IsOwn(key) || key == labels.DeployHealthAgent && value == labels.True {
			r.Labels[key] = nil
		}
	}
	for key := range node.Annotations {
		if labels.IsOwn(key) {
			r.Annotations[key] = nil
		}
	}
	r.endDrain()
	r.endHealthAction()
	r.removeTaints()
	return r
}
