package requeue

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EnqueueAfter returns a handler that enqueues the keys of each object after a delay. Of several events the shortest
// delay applies, so that a burst causes one reconcile.
func EnqueueAfter(
	delay func(client.Object) time.Duration, keys func(client.Object) []reconcile.Request,
) handler.EventHandler {
	enqueue := func(object client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, key := range keys(object) {
			q.AddAfter(key, delay(object))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.Object, q)
		},
		GenericFunc: func(
			_ context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
		) {
			enqueue(e.Object, q)
		},
	}
}
