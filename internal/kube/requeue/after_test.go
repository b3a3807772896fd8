package requeue_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

// A burst of events is one request, once the delay after the first is over.
func TestBurstIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		handler := requeue.EnqueueAfter(
			func(client.Object) time.Duration { return time.Second },
			func(object client.Object) []reconcile.Request {
				return []reconcile.Request{requestFor(object.GetLabels()["of"])}
			},
		)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"of": "one"}}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"of": "two"}}}
		handler.Create(t.Context(), event.CreateEvent{Object: pod}, queue)
		time.Sleep(900 * time.Millisecond)
		handler.Update(t.Context(), event.UpdateEvent{ObjectOld: other, ObjectNew: pod}, queue)
		handler.Delete(t.Context(), event.DeleteEvent{Object: pod}, queue)
		handler.Generic(t.Context(), event.GenericEvent{Object: other}, queue)
		g.Expect(queue.Len()).To(BeZero())
		time.Sleep(101 * time.Millisecond)
		synctest.Wait()
		g.Expect(queue.Len()).To(Equal(1))
		first, _ := queue.Get()
		g.Expect(first.Name).To(Equal("one"))
		queue.Done(first)
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(queue.Len()).To(Equal(1))
		second, _ := queue.Get()
		g.Expect(second.Name).To(Equal("two"))
		queue.Done(second)
	})
}

// Each kind of event enqueues the new object.
func TestAllEventsEnqueue(t *testing.T) {
	g := NewWithT(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	handler := requeue.EnqueueAfter(
		func(client.Object) time.Duration { return 0 },
		func(object client.Object) []reconcile.Request {
			return []reconcile.Request{requestFor(object.GetName())}
		},
	)
	named := func(name string) client.Object { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	handler.Create(t.Context(), event.CreateEvent{Object: named("created")}, queue)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: named("old"), ObjectNew: named("new")}, queue)
	handler.Delete(t.Context(), event.DeleteEvent{Object: named("deleted")}, queue)
	handler.Generic(t.Context(), event.GenericEvent{Object: named("any")}, queue)
	for _, name := range []string{"created", "new", "deleted", "any"} {
		key, _ := queue.Get()
		g.Expect(key).To(Equal(requestFor(name)))
	}
	g.Expect(queue.Len()).To(BeZero())
}
