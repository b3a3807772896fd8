package upgrade

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
)

// Timing has the delays of the Reconciler. Tests shorten them.
type Timing struct {
	allnodes.Delays
	// FirstEviction and LastEviction bound the back-off of a pod whose eviction the API server has rejected.
	FirstEviction, LastEviction time.Duration
	// FirstPoll is the delay before the pods of users are read again on nodes that wait for them, as these pods cause no
	// events here. It doubles up to LastPoll while they stay the same.
	FirstPoll, LastPoll time.Duration
	// RetryBusy is the delay before the pods are read again for which a MIG layout waits.
	RetryBusy time.Duration
	// KeepAnswer is how long the answer to a refused call is reported in place of later ones, which may have another text
	// each time.
	KeepAnswer time.Duration
	// Deadline is the timeout of one call.
	Deadline time.Duration
	// FirstRetryFailed and LastRetryFailed bound the back-off of a node whose upgrade has failed while its old driver
	// worked.
	FirstRetryFailed, LastRetryFailed time.Duration
}

// DefaultTiming returns the delays for production.
func DefaultTiming() Timing {
	return Timing{
		Delays:           allnodes.DefaultDelays(),
		FirstEviction:    5 * time.Second,
		LastEviction:     30 * time.Second,
		FirstPoll:        2 * time.Second,
		LastPoll:         15 * time.Second,
		RetryBusy:        30 * time.Second,
		KeepAnswer:       10 * time.Minute,
		Deadline:         5 * time.Second,
		FirstRetryFailed: 10 * time.Minute,
		LastRetryFailed:  3 * time.Hour,
	}
}
