package requeue

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// All handles a generic event by enqueuing all of these keys with this priority; events of single objects have 0.
func EnqueueAll(priority int, keys func() []reconcile.Request) handler.EventHandler {
	return handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if prioritised, is := q.(priorityqueue.PriorityQueue[reconcile.Request]); is {
			prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys()...)
			return
		}
		for _, key := range keys() {
			q.Add(key)
		}
	}}
}
