package status

import (
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// setPaused makes the conditions Ready and Error of a paused policy report that it is paused. Their status stays that
// of the nodes and operands.
func setPaused(status *v1.ClusterPolicyStatus, spec v1.ClusterPolicySpec) {
	if spec.Paused == nil || !*spec.Paused {
		return
	}
	for _, conditionType := range []string{v1.ConditionReady, v1.ConditionError} {
		if condition := meta.FindStatusCondition(status.Conditions, conditionType); condition != nil {
			condition.Message = text.Truncate("spec.paused is true, so the operator changes nothing; "+
				assess.WithDetail(condition.Reason, condition.Message), conditions.MaxMessage)
			condition.Reason = v1.ReasonPaused
		}
	}
}
