package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// checkAuxiliary judges the operands that are not needed to use GPUs, as far as they run on nodes.
func checkAuxiliary(in Input, status v1.ClusterPolicyStatus) *finding {
	auxiliary := filterOperands(in, status, isAuxiliary)
	if failing := firstInState(auxiliary, v1.OperandInvalid, v1.OperandConflict, v1.OperandError, v1.OperandDegraded); failing != nil {
		return &finding{ready: metav1.ConditionFalse, reason: failing.Reason, message: operandMessage(failing), degraded: true}
	}
	if waiting := firstInState(auxiliary, v1.OperandWaiting, v1.OperandProgressing); waiting != nil {
		return &finding{ready: metav1.ConditionFalse, reason: v1.ReasonOperandNotReady, message: operandMessage(waiting), progressing: true}
	}
	if pending := firstWithReason(auxiliary, v1.ReasonUpgradePending); pending != nil {
		return &finding{ready: metav1.ConditionFalse, reason: v1.ReasonUpgradePending, message: operandMessage(pending), progressing: true}
	}
	if status.NodeSummary.Total == 0 {
		return &finding{ready: metav1.ConditionTrue, reason: noNodesFinding(status).reason}
	}
	return &finding{ready: metav1.ConditionTrue, reason: v1.ReasonReconciled}
}

// isAuxiliary reports whether an operand runs on GPU nodes and is not needed to use their GPUs.
func isAuxiliary(o *operand.Operand) bool { return o.Stage == "" && len(o.Workloads) > 0 }

// isEssential reports whether an operand is needed to use GPUs, or is of the cluster.
func isEssential(o *operand.Operand) bool { return !isAuxiliary(o) }

// filterOperands are the statuses of some of the operands.
func filterOperands(in Input, status v1.ClusterPolicyStatus, match func(*operand.Operand) bool) []v1.OperandStatus {
	var found []v1.OperandStatus
	for i := range status.Operands {
		if o, known := in.Plan.Catalogue.Find(operand.Name(status.Operands[i].Name)); known && match(o) {
			found = append(found, status.Operands[i])
		}
	}
	return found
}
