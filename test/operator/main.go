// Command operator is the operator with a faster timing, for tests on a real control plane. Otherwise its behaviour
// is the same.
package main

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/cmd/gpu-operator/app"
)

func main() { app.Main(quick()) }

// quick keeps the debounce times, as the number of writes depends on them, and the dwell, which tests cover.
func quick() app.Timing {
	timing := app.DefaultTiming()
	timing.Apply.LastRetry = 3 * time.Second
	timing.Status.CounterInterval = 2 * time.Second
	timing.Policy.LastRetry = 5 * time.Second
	timing.Policy.RetryConflict = 2 * time.Second
	timing.Node.LastRetry = 5 * time.Second
	timing.Node.StageDwell = 2 * time.Second
	timing.Node.RetryLog = 500 * time.Millisecond
	timing.Node.Retaint = 15 * time.Second
	timing.Node.RetryHeld, timing.Node.MaxRetryHeld = 500*time.Millisecond, 2*time.Second
	timing.Node.RemovalPatience = 10 * time.Second
	timing.Upgrade.LastRetry = 5 * time.Second
	timing.Upgrade.FirstEviction, timing.Upgrade.LastEviction = time.Second, 2*time.Second
	timing.Upgrade.FirstPoll, timing.Upgrade.LastPoll = 500*time.Millisecond, 2*time.Second
	timing.Other.Interval, timing.Other.FoundInterval = time.Second, 500*time.Millisecond
	timing.Other.Gone, timing.Other.Quiet = 2*time.Second, 10*time.Second
	timing.Neighbours.Idle, timing.Neighbours.FoundInterval = time.Second, time.Second
	return timing
}
