package requeue_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// A queue without priorities gets all keys, and one with them gets them with the priority. Other events add none.
func TestEnqueueAll(t *testing.T) {
	g := NewWithT(t)
	handler := requeue.EnqueueAll(7, func() []reconcile.Request {
		return []reconcile.Request{requestFor("a"), requestFor("b")}
	})
	plain := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	prioritised := priorityqueue.New[reconcile.Request]("")
	for _, queue := range []workqueue.TypedRateLimitingInterface[reconcile.Request]{plain, prioritised} {
		defer queue.ShutDown()
		handler.Create(t.Context(), event.CreateEvent{}, queue)
		handler.Generic(t.Context(), event.GenericEvent{}, queue)
		g.Eventually(queue.Len, 10*time.Second).Should(Equal(2))
	}
	first, _ := plain.Get()
	second, _ := plain.Get()
	g.Expect([]reconcile.Request{first, second}).To(Equal([]reconcile.Request{requestFor("a"), requestFor("b")}))
	for _, name := range []string{"a", "b"} {
		key, priority, _ := prioritised.GetWithPriority()
		g.Expect(key).To(Equal(requestFor(name)))
		g.Expect(priority).To(Equal(7))
	}
}

func TestMinDelay(t *testing.T) {
	tests := []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}, {-1, 2, 2}, {2, -1, 2},
	}
	for _, test := range tests {
		NewWithT(t).Expect(requeue.MinDelay(test.a, test.b)).To(Equal(test.want), "%d and %d", test.a, test.b)
	}
}
