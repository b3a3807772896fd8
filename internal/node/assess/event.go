package assess

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
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

// startReasons maps the reasons of the kubelet's Events about pods without a started container to the reason that is
// reported. The states of the containers do not show these failures.
var startReasons = map[string]string{
	"FailedMount":            v1.ReasonFailedMount,
	"FailedMapVolume":        v1.ReasonFailedMount,
	"FailedAttachVolume":     v1.ReasonFailedMount,
	"FailedCreatePodSandBox": v1.ReasonFailedCreatePodSandBox,
	"NetworkNotReady":        v1.ReasonFailedCreatePodSandBox,
}

// IsOfHandler reports whether the container runtime does not know the handler of the pod's RuntimeClass: containerd and
// CRI-O say so in these words.
func (f PodFailure) IsOfHandler() bool {
	return strings.Contains(f.Message, "no runtime for") || strings.Contains(f.Message, "RuntimeHandler") ||
		strings.Contains(f.Message, "runtime handler")
}

// IsStartFailure reports whether an Event is about a pod that the kubelet cannot start.
func IsStartFailure(event *corev1.Event) bool { return startReasons[event.Reason] != "" }

// StartFailure returns the failure that an Event reports for which IsStartFailure is true.
func StartFailure(event *corev1.Event) PodFailure {
	return PodFailure{Reason: startReasons[event.Reason], Message: readiness.KubeletCause(event.Message)}
}
