package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkAuxiliary returns the finding about the auxiliary operands.
func checkAuxiliary(in Input, status v1.ClusterPolicyStatus) *finding {
	auxiliary := filterOperands(in, status, isAuxiliary)
	failures := []v1.OperandState{v1.OperandInvalid, v1.OperandConflict, v1.OperandError, v1.OperandDegraded}
	if failing := firstInState(auxiliary, failures...); failing != nil {
		return failure(failing.Reason, operandMessage(failing))
	}
	if waiting := firstInState(auxiliary, v1.OperandWaiting, v1.OperandProgressing); waiting != nil {
		return &finding{
			ready: metav1.ConditionFalse, reason: v1.ReasonOperandNotReady, message: operandMessage(waiting), progressing: true,
		}
	}
	if pending := firstWithReason(auxiliary, v1.ReasonUpgradePending); pending != nil {
		return &finding{
			ready: metav1.ConditionFalse, reason: v1.ReasonUpgradePending, message: operandMessage(pending), progressing: true,
		}
	}
	if status.NodeSummary.Total == 0 {
		return &finding{ready: metav1.ConditionTrue, reason: noNodesFinding(status).reason}
	}
	return &finding{ready: metav1.ConditionTrue, reason: v1.ReasonReconciled}
}

// isAuxiliary reports whether an operand runs on GPU nodes, but is not needed to use their GPUs.
func isAuxiliary(o *operand.Operand) bool { return o.Stage == "" && len(o.Workloads) > 0 }

// isEssential reports whether an operand is needed to use GPUs. Operands that do not run on GPU nodes are, too.
func isEssential(o *operand.Operand) bool { return !isAuxiliary(o) }

// filterOperands returns the statuses of the operands that match.
func filterOperands(in Input, status v1.ClusterPolicyStatus, match func(*operand.Operand) bool) []v1.OperandStatus {
	var found []v1.OperandStatus
	for i := range status.Operands {
		if o, known := in.Plan.Catalogue.Find(operand.Name(status.Operands[i].Name)); known && match(o) {
			found = append(found, status.Operands[i])
		}
	}
	return found
}
