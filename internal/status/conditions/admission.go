package conditions

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	operatorversion "github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// SetAdmissionPolicyMissing sets the condition AdmissionPolicyMissing if the admission policies are not installed, and
// removes it otherwise. The operator cannot install them: with that right it could also remove its own limits.
func SetAdmissionPolicyMissing(status *v1.ClusterPolicyStatus, in operand.Input) {
	if in.Exists(operand.AdmissionPolicies) {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionAdmissionPolicyMissing)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionAdmissionPolicyMissing, Status: metav1.ConditionTrue, Reason: v1.ReasonAdmissionPolicyMissing,
		Message: fmt.Sprintf("%s does not exist, so RBAC alone limits what the operator and the pods of the stack may "+
			"write. To install the admission policies, run kubectl apply -f %s",
			operand.AdmissionPolicies, operatorversion.AdmissionManifest(operatorversion.Version)),
		ObservedGeneration: status.ObservedGeneration,
	})
}
