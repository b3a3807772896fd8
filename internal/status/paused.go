package status

import (
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// setPaused says of a policy that is paused first that it is. Whether it is Ready stays what its nodes and
// operands say, and so do the other conditions.
func setPaused(status *v1.ClusterPolicyStatus, spec v1.ClusterPolicySpec) {
	if !or(spec.Paused) {
		return
	}
	for _, kind := range []string{v1.ConditionReady, v1.ConditionError} {
		if condition := meta.FindStatusCondition(status.Conditions, kind); condition != nil {
			condition.Message = text.Truncate("spec.paused is true, so nothing is changed; "+assess.WithDetail(condition.Reason, condition.Message), maxConditionMessage)
			condition.Reason = v1.ReasonPaused
		}
	}
}
