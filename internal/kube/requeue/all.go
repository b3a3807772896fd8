package requeue

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EnqueueAll returns a handler that enqueues all keys with this priority for a generic event. Other events have
// priority 0.
func EnqueueAll(priority int, keys func() []reconcile.Request) handler.EventHandler {
	return handler.Funcs{
		GenericFunc: func(
			_ context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
		) {
			if prioritised, is := q.(priorityqueue.PriorityQueue[reconcile.Request]); is {
				prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys()...)
				return
			}
			for _, key := range keys() {
				q.Add(key)
			}
		},
	}
}
