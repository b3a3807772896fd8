package observe_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// The facts of all nodes have another version after they have changed, and not when nodes only come further.
func TestVersionsOfFacts(t *testing.T) {
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.present": "true"}}}
	}
	tests := map[string]struct {
		happens func(*observe.Observer, client.Client) error
		anew    bool
	}{
		"nothing": {func(*observe.Observer, client.Client) error { return nil }, false},
		"a condition": {func(_ *observe.Observer, c client.Client) error {
			ready := node("a")
			ready.Status.Conditions = []corev1.NodeCondition{{Type: "nvidia.com/GPUReady", Status: "True"}}
			return c.Status().Update(t.Context(), ready)
		}, false},
		"a pod": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Create(event.CreateEvent{Object: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}})
			return nil
		}, false},
		"a label": {func(_ *observe.Observer, c client.Client) error {
			labelled := node("a")
			labelled.Labels["nvidia.com/gpu.deploy.driver"] = "false"
			return c.Update(t.Context(), labelled)
		}, true},
		"a node comes": {func(_ *observe.Observer, c client.Client) error { return c.Create(t.Context(), node("c")) }, true},
		"a node goes":  {func(_ *observe.Observer, c client.Client) error { return c.Delete(t.Context(), node("a")) }, true},
		"one node goes, and another comes": {func(_ *observe.Observer, c client.Client) error {
			return errors.Join(c.Delete(t.Context(), node("a")), c.Create(t.Context(), node("c")))
		}, true},
		"a node is no GPU node any more": {func(_ *observe.Observer, c client.Client) error {
			bare := node("a")
			bare.Labels = nil
			return c.Update(t.Context(), bare)
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(node("a"), node("b")).WithStatusSubresource(&corev1.Node{}).Build()
			observer := observe.NewObserver(c, "gpu-operator")
			before, err := observer.Snapshot(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(before.Facts).To(HaveLen(2))
			g.Expect(test.happens(observer, c)).To(Succeed())
			after, err := observer.Snapshot(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			same := after.FactsVersion == before.FactsVersion
			g.Expect(same).NotTo(Equal(test.anew))
			fresh, err := observe.NewObserver(c, "gpu-operator").Snapshot(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after.Facts).To(ConsistOf(fresh.Facts))
			again, err := observer.Snapshot(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again.FactsVersion).To(Equal(after.FactsVersion), "once is enough")
		})
	}
}
