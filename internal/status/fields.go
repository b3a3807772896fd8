package status

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// setFieldConditions sets the conditions UnsupportedFields, which also reports the ignored variables, and
// DeprecatedFields.
func setFieldConditions(status *v1.ClusterPolicyStatus, spec v1.ClusterPolicySpec, ignoredVariables []string) {
	set := func(conditionType, reason string, notes []string) {
		condition := metav1.Condition{
			Type: conditionType, Status: metav1.ConditionFalse, Reason: v1.ReasonNone,
			ObservedGeneration: status.ObservedGeneration,
		}
		if len(notes) > 0 {
			condition.Status, condition.Reason = metav1.ConditionTrue, reason
			condition.Message = text.Truncate(strings.Join(notes, "; "), maxConditionMessage)
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	set(v1.ConditionUnsupportedFields, v1.ReasonNotSupportedYet, append(fieldnotes.Unsupported(spec), ignoredVariables...))
	set(v1.ConditionDeprecatedFields, v1.ReasonDeprecated, fieldnotes.Deprecated(spec))
}
