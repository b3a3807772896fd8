package healthaction

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
)

// Timing has the delays of the Reconciler. Tests shorten them.
type Timing struct {
	allnodes.Delays
	// RetryForbidden is the delay before a write is tried again that the API server has forbidden.
	RetryForbidden time.Duration
	// GiveUp is how long the API server may reject an action before the node gives up its place, and then how long the
	// action is not tried.
	GiveUp time.Duration
	// Deadline is the timeout of one call.
	Deadline time.Duration
}

// DefaultTiming returns the delays for production.
func DefaultTiming() Timing {
	return Timing{
		Delays:         allnodes.DefaultDelays(),
		RetryForbidden: 30 * time.Second,
		GiveUp:         5 * time.Minute,
		Deadline:       10 * time.Second,
	}
}
