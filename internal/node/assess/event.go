package assess

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// LastSeen returns when what an Event reports was last seen. Components that write Events of events.k8s.io/v1, such as
// the scheduler, leave lastTimestamp empty, and count repetitions in a series.
func LastSeen(event *corev1.Event) time.Time {
	last := times.Later(event.LastTimestamp.Time, event.EventTime.Time)
	if event.Series != nil {
		last = times.Later(last, event.Series.LastObservedTime.Time)
	}
	return last
}
