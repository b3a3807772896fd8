package observe_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// gpuNode is a node that is managed.
func gpuNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.present": "true"}}}
}

// A node has another version after whatever verdicts on it are made of has changed, and then alone.
func TestVersionsOfNodes(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "driver", Namespace: "gpu-operator", Labels: map[string]string{"nvidia.com/gpu-operator.operand": "driver"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
	}
	unplaced := &corev1.Pod{Spec: corev1.PodSpec{Affinity: affinityTo("a")}}
	elsewhere := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "c"}}
	tests := map[string]struct {
		happens func(*observe.Observer, client.Client) error
		want    []string
	}{
		"nothing": {func(*observe.Observer, client.Client) error { return nil }, nil},
		"a node is labelled": {func(_ *observe.Observer, c client.Client) error {
			labelled := gpuNode("a")
			labelled.Labels["nvidia.com/gpu.deploy.driver"] = "false"
			return c.Update(t.Context(), labelled)
		}, []string{"a"}},
		"a node is another of the same name": {func(_ *observe.Observer, c client.Client) error {
			return errors.Join(c.Delete(t.Context(), gpuNode("a")), c.Create(t.Context(), gpuNode("a")))
		}, []string{"a"}},
		"a pod comes": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Create(event.CreateEvent{Object: pod})
			return nil
		}, []string{"a"}},
		"a pod without a node comes": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Create(event.CreateEvent{Object: unplaced})
			return nil
		}, []string{"a"}},
		"a pod changes": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: pod})
			return nil
		}, []string{"a"}},
		"a pod goes": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Delete(event.DeleteEvent{Object: pod})
			return nil
		}, []string{"a"}},
		"a pod of another node goes": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Delete(event.DeleteEvent{Object: elsewhere})
			return nil
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(gpuNode("a"), gpuNode("b")).Build()
			observer := observe.NewObserver(c, "gpu-operator")
			before := versions(t, observer)
			g.Expect(before).To(HaveLen(2))
			g.Expect(before["a"]).NotTo(Equal(before["b"]))
			g.Expect(test.happens(observer, c)).To(Succeed())
			after := versions(t, observer)
			var changed []string
			for name, version := range after {
				if version != before[name] {
					changed = append(changed, name)
				}
			}
			g.Expect(changed).To(ConsistOf(test.want))
			g.Expect(versions(t, observer)).To(Equal(after), "once is enough")
		})
	}
}

func versions(t *testing.T, observer *observe.Observer) map[string]uint64 {
	t.Helper()
	snapshot, err := observer.Snapshot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	found := map[string]uint64{}
	for _, node := range snapshot.Nodes {
		found[node.Facts.Name] = node.Version
	}
	return found
}

// The facts of all nodes have another version after they have changed, and not when nodes only come further.
func TestVersionsOfFacts(t *testing.T) {
	tests := map[string]struct {
		happens func(*observe.Observer, client.Client) error
		anew    bool
	}{
		"nothing": {func(*observe.Observer, client.Client) error { return nil }, false},
		"a condition": {func(_ *observe.Observer, c client.Client) error {
			ready := gpuNode("a")
			ready.Status.Conditions = []corev1.NodeCondition{{Type: "nvidia.com/GPUReady", Status: "True"}}
			return c.Status().Update(t.Context(), ready)
		}, false},
		"a pod": {func(o *observe.Observer, _ client.Client) error {
			o.Pods().Create(event.CreateEvent{Object: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}})
			return nil
		}, false},
		"a label": {func(_ *observe.Observer, c client.Client) error {
			labelled := gpuNode("a")
			labelled.Labels["nvidia.com/gpu.deploy.driver"] = "false"
			return c.Update(t.Context(), labelled)
		}, true},
		"a node comes": {func(_ *observe.Observer, c client.Client) error { return c.Create(t.Context(), gpuNode("c")) }, true},
		"a node goes":  {func(_ *observe.Observer, c client.Client) error { return c.Delete(t.Context(), gpuNode("a")) }, true},
		"one node goes, and another comes": {func(_ *observe.Observer, c client.Client) error {
			return errors.Join(c.Delete(t.Context(), gpuNode("a")), c.Create(t.Context(), gpuNode("c")))
		}, true},
		"a node is no GPU node any more": {func(_ *observe.Observer, c client.Client) error {
			bare := gpuNode("a")
			bare.Labels = nil
			return c.Update(t.Context(), bare)
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(gpuNode("a"), gpuNode("b")).WithStatusSubresource(&corev1.Node{}).Build()
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

// What cannot be read is an error that names it.
func TestAnObserverTellsWhatItCannotRead(t *testing.T) {
	tests := map[string]func(*observe.Observer) error{
		"listing nodes": func(o *observe.Observer) error {
			_, err := o.Snapshot(t.Context())
			return err
		},
		"listing pods of node a": func(o *observe.Observer) error {
			_, err := o.PodsOn(t.Context(), []string{"a"})
			return err
		},
	}
	for says, read := range tests {
		t.Run(says, func(t *testing.T) {
			failing := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("no cache")
			}}
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithInterceptorFuncs(failing).Build()
			NewWithT(t).Expect(read(observe.NewObserver(c, "gpu-operator"))).To(MatchError(says + ": no cache"))
		})
	}
}
