package conditions

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// stalling are the reasons with which an object cannot become ready until a person acts. What fails on nodes or is
// tried again is none of them: readers such as Flux give up at once on a stalled object, and one broken node of many
// must not make them do so.
var stalling = []string{
	v1.ReasonInvalidSpec, v1.ReasonNotSupportedYet, v1.ReasonConflict, v1.ReasonIgnored, v1.ReasonAdmissionPolicyMissing,
	v1.ReasonConflictingNodeSelector,
}

// IsStalled reports whether an object whose condition Ready has this status and reason, apart from Paused, has the
// condition Stalled.
func IsStalled(ready metav1.ConditionStatus, reason string) bool {
	return ready != metav1.ConditionTrue && slices.Contains(stalling, reason)
}
