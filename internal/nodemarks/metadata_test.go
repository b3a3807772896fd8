package nodemarks_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/nodemarks"
)

// What each mark alone shows of a node.
func TestMarksOfANode(t *testing.T) {
	const own = "nvidia.com/gpu-operator."
	marked := func(labels, annotations map[string]string) *corev1.Node {
		node := &corev1.Node{}
		node.Labels, node.Annotations = labels, annotations
		return node
	}
	label := func(key string) *corev1.Node { return marked(map[string]string{key: "a"}, nil) }
	annotation := func(key string) *corev1.Node { return marked(nil, map[string]string{key: "a"}) }
	condition := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "nvidia.com/GPUReady"}}}}
	for name, test := range map[string]struct {
		node                                   *corev1.Node
		managed, operands, marked, writtenOnly bool
	}{
		"nothing":           {node: marked(nil, nil)},
		"an administrator":  {node: label("nvidia.com/gpu.present")},
		"the pool":          {node: label(own + "pool"), managed: true, operands: true, marked: true},
		"lost":              {node: annotation(own + "discovery-lost-since"), managed: true, operands: true},
		"the condition":     {node: condition, managed: true, operands: true},
		"the layout":        {node: label(own + "runtime"), operands: true, marked: true},
		"discovered labels": {node: annotation(own + "discovered-labels"), marked: true},
		"counted GPUs":      {node: annotation(own + "gpus-on-bus"), marked: true},
		"the health agent":  {node: annotation(own + "gpu-health"), marked: true},
		"the clean-up":      {node: label(own + "cleanup"), marked: true},
		"a start-up taint":  {node: annotation(own + "startup-taints"), writtenOnly: true},
		"a health action":   {node: annotation(own + "health-record"), writtenOnly: true},
		"a drain":           {node: annotation(own + "mig-drain"), writtenOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(nodemarks.WasManaged(test.node)).To(Equal(test.managed))
			g.Expect(nodemarks.HadOperands(test.node)).To(Equal(test.operands))
			g.Expect(nodemarks.IsMarked(test.node)).To(Equal(test.marked))
			g.Expect(nodemarks.WasWritten(test.node)).To(Equal(test.managed || test.marked || test.writtenOnly))
		})
	}
}
