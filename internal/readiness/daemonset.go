package readiness

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// DaemonSet tells whether the DaemonSet controller has taken up the object and scheduled its pods
// on as many nodes as expected. Whether the pods do their work is told by Pod, node by node.
func DaemonSet(ds *appsv1.DaemonSet, expected int) Verdict {
	if ds.Status.ObservedGeneration < ds.Generation {
		return progressing(v1.ReasonRollingOut, "the DaemonSet controller has not taken up the change yet")
	}
	if int(ds.Status.DesiredNumberScheduled) < expected {
		return progressing(v1.ReasonNotScheduled,
			fmt.Sprintf("scheduled on %d of %d nodes: look for taints that the pods do not tolerate", ds.Status.DesiredNumberScheduled, expected))
	}
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && ds.Status.UpdatedNumberScheduled < ds.Status.DesiredNumberScheduled {
		return progressing(v1.ReasonRollingOut,
			fmt.Sprintf("updated on %d of %d nodes", ds.Status.UpdatedNumberScheduled, ds.Status.DesiredNumberScheduled))
	}
	return Verdict{}
}
