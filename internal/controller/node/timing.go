package node

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
)

// Timing are the waits of the Reconciler; tests shorten them.
type Timing struct {
	// Batch is how long a node whose pods change is left before it is assessed: several of them take a step each second
	// while they start. BatchPerNode comes on top for each node that is starting, up to LongestBatch in all.
	Batch, BatchPerNode, LongestBatch time.Duration
	// Step is how long a node that is starting is left at least after the event of a pod that neither fails nor is the last
	// one to be ready: its stage may change by that, and no more.
	IntermediateBatch time.Duration
	// RetryStale is when a node is assessed again whose last write the cache does not show, or that others were writing
	// to. Its event normally comes first.
	RetryStale time.Duration
	// FirstRetry and LastRetry bound the back-off of one node after a failed write.
	FirstRetry, LastRetry time.Duration
	// RetryForbidden is when a change of taints is tried again that the API server has refused: there is no event when its
	// admission policy has been changed. One node tries for all.
	RetryForbidden time.Duration
	// Deadline is that of one write to a Node, and of one read that bypasses the cache.
	Deadline time.Duration
	// Settle is how long a node must be at a stage before that is written, at first; StageDwellPerNode comes on top for each
	// other node that is starting, and each stage that is written multiplies it by StageDwellFactor, up to LongestStageDwell.
	StageDwell, StageDwellPerNode, LongestStageDwell time.Duration
	StageDwellFactor                                 int
	// Retaint is how long a node must have been without a usable GPU before its start-up taints come back: a pod that is
	// replaced, or a driver that starts anew, takes less.
	Retaint time.Duration
	// RetryBusy is after how long at most to look again at a node that would be given up, but for the pods that use its
	// GPUs: there is no event when they have ended.
	RetryBusy time.Duration
	// Dwell is how long a change for the worse must last before it is reported.
	Dwell assess.Dwell
}

// DefaultTiming returns the waits that the operator works with.
func DefaultTiming() Timing {
	return Timing{
		Batch: 100 * time.Millisecond, BatchPerNode: time.Millisecond, LongestBatch: 1500 * time.Millisecond,
		IntermediateBatch: 800 * time.Millisecond,
		RetryStale:        time.Second, FirstRetry: time.Second, LastRetry: 30 * time.Second, RetryForbidden: 30 * time.Second,
		Deadline:   3 * time.Second,
		StageDwell: 10 * time.Second, StageDwellPerNode: 150 * time.Millisecond, LongestStageDwell: 160 * time.Second, StageDwellFactor: 4,
		Retaint: 2 * time.Minute, RetryBusy: 10 * time.Minute,
		Dwell: assess.DefaultDwell(),
	}
}
