// Command operator is the operator with shorter waits, for tests on a real control plane. What it does is the same.
package main

import (
	"time"

	"github.com/clusterpolicy/gpu-operator/cmd/gpu-operator/app"
)

func main() { app.Main(quick()) }

// quick leaves the batches as they are, as the number of writes depends on them, and the dwell, which stories are about.
func quick() app.Timing {
	timing := app.DefaultTiming()
	timing.Apply.LastRetry = 3 * time.Second
	timing.Status.CounterInterval = 2 * time.Second
	timing.Policy.LastRetry = 5 * time.Second
	timing.Policy.RetryConflict = 2 * time.Second
	timing.Node.LastRetry = 5 * time.Second
	timing.Node.StageDwell = 2 * time.Second
	timing.Node.Retaint = 15 * time.Second
	return timing
}
