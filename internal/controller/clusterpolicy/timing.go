package clusterpolicy

import (
	"time"
)

// Timing are the waits of the Reconciler; tests shorten them.
type Timing struct {
	// Batch is how long a pass waits for more events before it starts, but for those of policies, which start it at once.
	// DebouncePerNode comes on top for what changes the more often, the more nodes there are, up to MaxDebounce in all: with
	// more nodes there is always something, and each pass costs more.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// FirstRetry and LastRetry bound the back-off after a failed call. The last is short, as the same pass reports
	// everything else.
	FirstRetry, LastRetry time.Duration
	// RetryConflict is how often an object of another owner is looked at: there is no event when it is gone.
	RetryConflict time.Duration
	// Sweep is how long the assessment of all nodes by another spec may take before it is reported: until then the status
	// stays as it is.
	StatusDelay time.Duration
	// Doubt is how long a spec must be another one than that which was last applied, though nobody has edited it, before it
	// is applied: around a change of the definition, API servers may show it for a moment without some of its fields.
	SpecStabilization time.Duration
	// RetryDeleted is how long nothing is done for a policy that the API server does not have, though the cache does.
	RetryDeleted time.Duration
	// Deadline is that of what a pass reads or writes by single calls.
	Deadline time.Duration
}

// DefaultTiming returns the waits that the operator works with.
func DefaultTiming() Timing {
	return Timing{
		Debounce: 200 * time.Millisecond, DebouncePerNode: time.Millisecond, MaxDebounce: 1500 * time.Millisecond,
		FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, RetryConflict: 30 * time.Second,
		StatusDelay: 2 * time.Second, SpecStabilization: 10 * time.Second, RetryDeleted: 5 * time.Second, Deadline: 3 * time.Second,
	}
}

// batch is how long a pass waits after an event of what there is the more of, the more nodes there are.
func (t Timing) debounce(nodes int) time.Duration {
	return min(t.Debounce+time.Duration(nodes)*t.DebouncePerNode, t.MaxDebounce)
}
