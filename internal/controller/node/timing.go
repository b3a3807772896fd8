package node

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// Timing has the delays of the Reconciler. Tests shorten them.
type Timing struct {
	// Debounce is the delay between an event of a pod and the reconcile of its node: several pods of a starting node
	// change each second. DebouncePerNode is added for each starting node, up to MaxDebounce, unless the condition waits
	// for this event. If labels wait for it, there is no delay.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// StageDebounce is the minimum of that delay for events that can only change the stage of a starting node.
	StageDebounce time.Duration
	// RetryStale is the delay after a conflict, or while the cache does not show the last write. Normally an event comes
	// first.
	RetryStale time.Duration
	// FirstRetry and LastRetry bound the back-off of a node after a failed write.
	FirstRetry, LastRetry time.Duration
	// RetryForbidden is the delay before a forbidden change of taints is retried, by one node for all: a change of the
	// admission policy causes no event.
	RetryForbidden time.Duration
	// Deadline is the timeout of one write to a Node, and of one read without a cache.
	Deadline time.Duration
	// StageDwell is how long the stage of a starting node must last before it is written. StageDwellPerNode is added for
	// each other node that was starting meanwhile, and each written stage multiplies the result by StageDwellFactor, up to
	// MaxStageDwell.
	StageDwell, StageDwellPerNode, MaxStageDwell time.Duration
	StageDwellFactor                             int
	// Retaint is how long a node must have had no usable GPU before its start-up taints are added again: replacing a pod
	// or restarting a driver takes less.
	Retaint time.Duration
	// RetryBusy is the longest delay before checking again whether pods use the GPUs of a node that is about to be
	// released: their end causes no event.
	RetryBusy time.Duration
	// RetryTenants and MaxRetryTenants bound the delay before the pods are read again for which a MIG layout waits: their
	// end causes no event.
	RetryTenants, MaxRetryTenants time.Duration
	// RetryLog is the delay before a log is read again that could not be read, or does not say what is looked for. It
	// grows with each attempt.
	RetryLog time.Duration
	// RetryReread is the delay before a node checks again whether it may replace the pods that read a changed
	// configuration. RetryRereadPerNode is added for each node.
	RetryReread, RetryRereadPerNode time.Duration
	// RereadPatience is how long other nodes wait until the new pods of such a node exist and are proven.
	RereadPatience time.Duration
	// RereadProof is how long the new pods must have been ready: a container without a readiness probe is ready from its
	// start until it crashes.
	RereadProof time.Duration
	// KubeletStart is how long a kubelet may take from its start until its node is ready.
	KubeletStart time.Duration
	// RetryHeld and MaxRetryHeld bound the delay before checking again whether pods hold the stack of a deleted policy on
	// a node. It grows with the time that they have done so.
	RetryHeld, MaxRetryHeld time.Duration
	// RemovalPatience is how long the removal of the stack waits for a node whose kubelet does not work.
	RemovalPatience time.Duration
	// Dwell is how long a worse assessment must last before it is reported.
	Dwell assess.Dwell
}

// DefaultTiming returns the delays for production.
func DefaultTiming() Timing {
	return Timing{
		Debounce:           100 * time.Millisecond,
		DebouncePerNode:    time.Millisecond,
		MaxDebounce:        1500 * time.Millisecond,
		StageDebounce:      800 * time.Millisecond,
		RetryStale:         time.Second,
		FirstRetry:         time.Second,
		LastRetry:          30 * time.Second,
		RetryForbidden:     30 * time.Second,
		Deadline:           3 * time.Second,
		StageDwell:         10 * time.Second,
		StageDwellPerNode:  150 * time.Millisecond,
		MaxStageDwell:      160 * time.Second,
		StageDwellFactor:   4,
		Retaint:            2 * time.Minute,
		RetryBusy:          10 * time.Minute,
		RetryTenants:       30 * time.Second,
		MaxRetryTenants:    10 * time.Minute,
		RetryLog:           10 * time.Second,
		RetryReread:        time.Second,
		RereadPatience:     5 * time.Minute,
		RereadProof:        10 * time.Second,
		RetryRereadPerNode: 10 * time.Millisecond,
		KubeletStart:       10 * time.Minute,
		RetryHeld:          2 * time.Second,
		MaxRetryHeld:       30 * time.Second,
		RemovalPatience:    5 * time.Minute,
		Dwell:              assess.DefaultDwell(),
	}
}
