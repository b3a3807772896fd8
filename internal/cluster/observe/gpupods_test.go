package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Operands do not count as users of a GPU. Which other pods do is decided by package gpuuse.
func TestGPUPods(t *testing.T) {
	request := func(name string) []corev1.Container {
		return []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")},
		}}}
	}
	tests := map[string]struct {
		pod  corev1.Pod
		uses bool
	}{
		"a GPU":            {pod: corev1.Pod{Spec: corev1.PodSpec{Containers: request("nvidia.com/gpu")}}, uses: true},
		"no GPU":           {pod: corev1.Pod{Spec: corev1.PodSpec{Containers: request("example.com/nic")}}},
		"the RuntimeClass": {pod: corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("gpu")}}, uses: true},
		"a claim for a GPU": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{ResourceClaimName: new("gpu")}}}},
			uses: true,
		},
		"a claim with admin access": {
			pod: corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{ResourceClaimName: new("admin")}}}},
		},
		"a claim that does not exist": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{ResourceClaimName: new("gone")}}}},
			uses: true,
		},
		"an operand": {pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "gpu-operator",
				Labels:    map[string]string{"nvidia.com/gpu-operator.operand": "device-plugin"},
			},
			Spec: corev1.PodSpec{RuntimeClassName: new("nvidia")},
		}},
		"the operand label in another namespace": {pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"nvidia.com/gpu-operator.operand": "device-plugin"}},
			Spec:       corev1.PodSpec{RuntimeClassName: new("nvidia")},
		}, uses: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := test.pod.DeepCopy()
			pod.Name, pod.Spec.NodeName = "p", "a"
			if pod.Namespace == "" {
				pod.Namespace = "team"
			}
			live := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, PodNodeField, IndexPodNode).
				WithObjects(pod, claimOf("v1", "gpu", "gpu.nvidia.com", nil)).
				WithObjects(claimOf("v1", "admin", "gpu.nvidia.com", new(true))).Build()
			want := BeEmpty()
			if test.uses {
				want = Equal([]string{"team/p"})
			}
			g.Expect(GPUPods(t.Context(), live, "a", "gpu-operator", "gpu")).To(want)
			g.Expect(GPUPods(t.Context(), live, "b", "gpu-operator", "gpu")).To(BeEmpty(), "it runs elsewhere")
		})
	}
}
