package metrics

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// ObserveJoin records how long after joining the cluster a node has reached a stage for the first time.
func (m *Meter) ObserveJoin(stage v1.Stage, after time.Duration) {
	m.joins.WithLabelValues(string(stage)).Observe(after.Seconds())
}
