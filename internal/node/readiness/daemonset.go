package readiness

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// CheckScheduled reports whether an operand's pods are scheduled on as many nodes as expected. The cause on a single
// node is in that node's assessment.
func CheckScheduled(scheduled, expected int) Verdict {
	if scheduled < expected {
		return progressing(v1.ReasonNotScheduled, fmt.Sprintf("scheduled on %d of %d nodes", scheduled, expected))
	}
	return Verdict{}
}

// DaemonSet reports whether the DaemonSet controller has observed and rolled out the object. The state of its pods is
// the matter of Pod.
func DaemonSet(ds *appsv1.DaemonSet) Verdict {
	if ds.Status.ObservedGeneration < ds.Generation {
		return progressing(v1.ReasonRollingOut, "the DaemonSet controller has not observed the change yet")
	}
	updated, desired := ds.Status.UpdatedNumberScheduled, ds.Status.DesiredNumberScheduled
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && updated < desired {
		return progressing(v1.ReasonRollingOut, fmt.Sprintf("updated on %d of %d nodes", updated, desired))
	}
	return Verdict{}
}
