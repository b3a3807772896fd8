package render_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// Hosts are cleaned up on the nodes that ask for it alone, whatever their taints are, by pods that are set up like
// those of the operands.
func TestCleanUp(t *testing.T) {
	g := NewWithT(t)
	s := situation{spec: v1.ClusterPolicySpec{
		DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "mine"},
		Global:     &v1.GlobalSpec{ImagePullSecrets: []v1.ObjectName{"registry"}},
	}}
	objects, err := render.Cleanup(catalogue(t), s.plan(t).Input, owner)
	g.Expect(err).NotTo(HaveOccurred())
	var sets []*appsv1.DaemonSet
	for _, object := range objects {
		g.Expect(object.GetOwnerReferences()).To(ConsistOf(HaveField("Name", owner.Name)), object.GetName())
		if ds, is := object.(*appsv1.DaemonSet); is {
			sets = append(sets, ds)
		}
	}
	g.Expect(sets).To(HaveLen(1))
	template := sets[0].Spec.Template
	g.Expect(template.Labels).To(And(HaveKeyWithValue("app.kubernetes.io/managed-by", "gpu-operator"),
		HaveKeyWithValue("nvidia.com/gpu-operator.operand", "node-cleanup")))
	pod := template.Spec
	g.Expect(pod.NodeSelector).To(Equal(map[string]string{"nvidia.com/gpu-operator.cleanup": "true"}))
	g.Expect(pod.Tolerations).To(Equal([]corev1.Toleration{{Operator: "Exists"}}))
	g.Expect(pod.PriorityClassName).To(Equal("mine"))
	g.Expect(pod.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "registry"}}))
	g.Expect(append(pod.InitContainers, pod.Containers...)).To(And(HaveLen(2), HaveEach(And(
		HaveField("Image", helper),
		HaveField("TerminationMessagePolicy", Equal(corev1.TerminationMessageFallbackToLogsOnError)),
	))))
}
