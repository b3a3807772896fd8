package observe_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// Only pods with GPUs count that the kubelet has refused since a time, and that nothing else has ended or removes.
func TestRefusedPods(t *testing.T) {
	g := NewWithT(t)
	after := now.Add(-time.Hour)
	status := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: "kubelet", Operation: "Update", APIVersion: "v1", Subresource: "status",
			Time: &metav1.Time{Time: at}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	const reason = `{"f:status":{"f:reason":{}}}`
	pods := fake.NewClientBuilder().WithScheme(newScheme(t)).WithReturnManagedFields().
		WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).
		WithIndex(&corev1.Pod{}, observe.PodPhaseField, func(o client.Object) []string {
			pod, _ := o.(*corev1.Pod)
			return []string{string(pod.Status.Phase)}
		})
	for name, change := range map[string]func(*corev1.Pod){
		"b": func(*corev1.Pod) {},
		"a-owned": func(p *corev1.Pod) {
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Job", Name: "j", UID: "j", Controller: new(true)}
			p.OwnerReferences = []metav1.OwnerReference{owner}
		},
		"two-writes": func(p *corev1.Pod) {
			old := status(after.Add(-time.Hour), reason)
			other := status(after.Add(time.Minute), `{"f:status":{"f:podIP":{}}}`)
			p.ManagedFields = []metav1.ManagedFieldsEntry{old, other, status(after.Add(time.Second), reason), old}
		},
		"earlier":       func(p *corev1.Pod) { p.ManagedFields[0].Time.Time = after },
		"at-a-label":    func(p *corev1.Pod) { p.ManagedFields[0].Subresource = "" },
		"no-time":       func(p *corev1.Pod) { p.ManagedFields[0].Time = nil },
		"other-fields":  func(p *corev1.Pod) { p.ManagedFields[0].FieldsV1 = nil },
		"without-gpu":   func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil },
		"evicted":       func(p *corev1.Pod) { p.Status.Reason = "Evicted" },
		"running":       func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
		"elsewhere":     func(p *corev1.Pod) { p.Spec.NodeName = "other" },
		"operand":       func(p *corev1.Pod) { p.Namespace = "gpu-operator" },
		"being-deleted": func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"a/b"} },
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		pod.UID, pod.ManagedFields = "u", []metav1.ManagedFieldsEntry{status(after.Add(time.Second), reason)}
		pod.Spec = corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main"}}}
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError"
		change(pod)
		pods.WithObjects(pod)
	}
	found, err := observe.RefusedPods(t.Context(), pods.Build(), "n", "gpu-operator", after)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, pod := range found {
		names = append(names, pod.String())
		g.Expect(pod.Owned).To(Equal(pod.Name == "a-owned"))
		g.Expect([]string{string(pod.UID), pod.ResourceVersion}).To(Equal([]string{"u", "999"}))
	}
	g.Expect(names).To(Equal([]string{"team/a-owned", "team/b", "team/two-writes"}))
}
