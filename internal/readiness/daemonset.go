package readiness

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Scheduled tells whether the pods of an operand's DaemonSets are scheduled on as many nodes as
// expected. Why they are not is a matter of each node.
func Scheduled(scheduled, expected int) Verdict {
	if scheduled < expected {
		return progressing(v1.ReasonNotScheduled, fmt.Sprintf("scheduled on %d of %d nodes", scheduled, expected))
	}
	return Verdict{}
}

// DaemonSet tells whether the DaemonSet controller has taken up the object and rolled it out. Whether
// the pods do their work is told by Pod, node by node.
func DaemonSet(ds *appsv1.DaemonSet) Verdict {
	if ds.Status.ObservedGeneration < ds.Generation {
		return progressing(v1.ReasonRollingOut, "the DaemonSet controller has not taken up the change yet")
	}
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && ds.Status.UpdatedNumberScheduled < ds.Status.DesiredNumberScheduled {
		return progressing(v1.ReasonRollingOut,
			fmt.Sprintf("updated on %d of %d nodes", ds.Status.UpdatedNumberScheduled, ds.Status.DesiredNumberScheduled))
	}
	return Verdict{}
}
