package conditions

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// OtherOperatorRunning returns the status of a policy while NVIDIA's operator is at work: the present one with the
// condition of that name. NVIDIA's operator writes Ready, Error and the state itself, so that they are set only while
// it has not: two writers would overwrite each other for ever.
func OtherOperatorRunning(policy *v1.ClusterPolicy, message string) v1.ClusterPolicyStatus {
	status := *policy.Status.DeepCopy()
	set := func(conditionType string, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: v1.ReasonOtherOperatorRunning,
			Message: text.Truncate(message, MaxMessage), ObservedGeneration: policy.Generation,
		})
	}
	set(v1.ConditionOtherOperatorRunning, metav1.ConditionTrue)
	ready := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Reason == v1.ReasonOtherOperatorRunning {
		set(v1.ConditionReady, metav1.ConditionFalse)
		set(v1.ConditionError, metav1.ConditionTrue)
	}
	if status.State == "" {
		status.State = v1.StateNotReady
	}
	return status
}

// ClearOtherOperator removes what OtherOperatorRunning has set, except the state, which another status replaces.
func ClearOtherOperator(status *v1.ClusterPolicyStatus) {
	for _, conditionType := range []string{v1.ConditionOtherOperatorRunning, v1.ConditionReady, v1.ConditionError} {
		condition := meta.FindStatusCondition(status.Conditions, conditionType)
		if condition != nil && condition.Reason == v1.ReasonOtherOperatorRunning {
			meta.RemoveStatusCondition(&status.Conditions, conditionType)
		}
	}
}
