package clusterpolicy

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Timing has the durations of the Reconciler; tests shorten them.
type Timing struct {
	// Debounce is how long events are batched before a pass starts; those of policies start it immediately.
	// DebouncePerNode is added for each node, up to MaxDebounce in all: with more nodes there are more events, and a
	// pass costs more.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// FirstRetry and LastRetry bound the back-off after a failed pass. LastRetry is short, because the status of
	// everything else is updated by the same passes.
	FirstRetry, LastRetry time.Duration
	// RetryConflict is the interval at which an object of another owner is checked: its deletion is no event here.
	RetryConflict time.Duration
	// StatusDelay is how long the status waits for all nodes to be assessed by a new basis. After that it reports that
	// nodes are still being assessed.
	StatusDelay time.Duration
	// SpecStabilization is how long a spec that differs from the last applied one, with the same generation, must stay so
	// before it is applied: while the CRD changes, API servers may return policies without some fields for a moment.
	SpecStabilization time.Duration
	// RetryDeleted is how long passes do nothing for a policy that is in the cache, but not in the API server.
	RetryDeleted time.Duration
	// RetryHandOver is how long a pass waits that cannot take over the pods of NVIDIA's operator yet.
	RetryHandOver time.Duration
	// Deadline bounds the reads of a pass that may bypass the cache.
	Deadline time.Duration
}

// DefaultTiming returns the durations for production.
func DefaultTiming() Timing {
	return Timing{
		Debounce: 200 * time.Millisecond, DebouncePerNode: time.Millisecond, MaxDebounce: 1500 * time.Millisecond,
		FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, RetryConflict: 30 * time.Second,
		StatusDelay: 2 * time.Second, SpecStabilization: 10 * time.Second, RetryDeleted: 5 * time.Second,
		RetryHandOver: time.Second,
		Deadline:      3 * time.Second,
	}
}

// debounce returns the debounce time for this number of nodes.
func (t Timing) debounce(nodes int) time.Duration {
	return min(t.Debounce+time.Duration(nodes)*t.DebouncePerNode, t.MaxDebounce)
}

// rateLimiter returns the back-off after failed passes.
func (t Timing) rateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](t.FirstRetry, t.LastRetry)
}
