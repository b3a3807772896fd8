package status

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// CountHealthActions counts the nodes with unhealthy GPUs by what is done with them.
func CountHealthActions(view fleet.View) metrics.HealthActions {
	counts := metrics.HealthActions{Done: map[v1.HealthAction]int{}, Held: map[healthaction.Hold]int{}}
	for _, verdict := range view.HealthActions {
		if verdict.Done != "" {
			counts.Done[verdict.Done]++
		}
		if verdict.Hold != "" {
			counts.Held[verdict.Hold]++
		}
	}
	return counts
}
