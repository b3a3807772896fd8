package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Terminated pods and operands do not count as users of a GPU.
func TestGPUPods(t *testing.T) {
	request := func(name, count string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(count)}}
	}
	container := func(r corev1.ResourceRequirements) []corev1.Container {
		return []corev1.Container{{Name: "main", Resources: r}}
	}
	tests := map[string]struct {
		pod  corev1.Pod
		uses bool
	}{
		"a GPU": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("nvidia.com/gpu", "1"))}},
			uses: true,
		},
		"a shared GPU": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("nvidia.com/gpu.shared", "1"))}},
			uses: true,
		},
		"a MIG device": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("nvidia.com/mig-1g.10gb", "1"))}},
			uses: true,
		},
		"in an init container": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{InitContainers: container(request("nvidia.com/gpu", "1"))}},
			uses: true,
		},
		"as a request": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{
					Containers: container(corev1.ResourceRequirements{Requests: request("nvidia.com/gpu", "1").Limits}),
				},
			},
			uses: true,
		},
		"no GPU": {
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("nvidia.com/gpu", "0"))}},
		},
		"memory": {pod: corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("memory", "1Gi"))}}},
		"a GPU of another vendor": {
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: container(request("amd.com/gpu", "1"))}},
		},
		"the RuntimeClass":     {pod: corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("gpu")}}, uses: true},
		"the one for CDI":      {pod: corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("nvidia-cdi")}}, uses: true},
		"another RuntimeClass": {pod: corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("gvisor")}}},
		"a claim": {
			pod:  corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}},
			uses: true,
		},
		"a pod that has succeeded": {pod: corev1.Pod{
			Spec:   corev1.PodSpec{Containers: container(request("nvidia.com/gpu", "1"))},
			Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
		}},
		"a pod that has failed": {pod: corev1.Pod{
			Spec:   corev1.PodSpec{Containers: container(request("nvidia.com/gpu", "1"))},
			Status: corev1.PodStatus{Phase: corev1.PodFailed},
		}},
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
			live := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, PodNodeField, IndexPodNode).WithObjects(pod).Build()
			want := BeEmpty()
			if test.uses {
				want = Equal([]string{"team/p"})
			}
			g.Expect(GPUPods(t.Context(), live, "a", "gpu-operator", "gpu")).To(want)
			g.Expect(GPUPods(t.Context(), live, "b", "gpu-operator", "gpu")).To(BeEmpty(), "it runs elsewhere")
		})
	}
}
