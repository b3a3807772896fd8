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

// A node has another version after whatever verdicts on it are made of has changed, and then alone.
func TestVersionsOfNodes(t *testing.T) {
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.present": "true"}}}
	}
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
			labelled := node("a")
			labelled.Labels["nvidia.com/gpu.deploy.driver"] = "false"
			return c.Update(t.Context(), labelled)
		}, []string{"a"}},
		"a node is another of the same name": {func(_ *observe.Observer, c client.Client) error {
			return errors.Join(c.Delete(t.Context(), node("a")), c.Create(t.Context(), node("a")))
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
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(node("a"), node("b")).Build()
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
