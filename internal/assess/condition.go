package assess

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Condition is the condition nvidia.com/GPUReady that an assessment gives the node of that name, without times.
func (a *Assessment) Condition(node string) corev1.NodeCondition {
	condition := corev1.NodeCondition{Type: labels.ConditionGPUReady, Status: corev1.ConditionTrue, Reason: v1.ReasonGPUReady}
	switch {
	case !a.Ready():
		condition.Status, condition.Reason = corev1.ConditionFalse, a.Reason
		condition.Message = WithDetail(a.Cause(node), a.Detail)
	case a.Outdated, a.Reason == v1.ReasonDiscoveryLabelsMissing:
		condition.Reason = a.Reason
		condition.Message = fmt.Sprintf("%s: GPUs can be used; %s", node, a.Message)
	default:
		condition.Message = strings.TrimSuffix(node+": GPUs can be used; "+a.Message, "; ")
	}
	return condition
}

// Cause is the message of the condition of a node that is not ready, without what changes while the cause is the same.
func (a *Assessment) Cause(node string) string {
	by := ""
	if a.Operand != "" {
		by = ", operand " + a.Operand
	}
	return fmt.Sprintf("%s: stage %s%s: %s", node, a.Stage, by, a.Message)
}

// MessageUpToDate reports whether a message that was written need not be replaced by this one, which begins with the cause and
// may go on with a detail. The detail may change with each attempt of a container, or be missing after one; that is
// not worth a write while the cause is the same. The first detail is.
func MessageUpToDate(before, cause, message string) bool {
	return before == message || strings.HasPrefix(before, cause+": ")
}

// WithDetail joins a message and its detail, either of which may be empty.
func WithDetail(message, detail string) string { return strings.TrimSuffix(message+": "+detail, ": ") }

// GPUReadyCondition returns the condition nvidia.com/GPUReady of a node, nil if it has none.
func GPUReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if string(node.Status.Conditions[i].Type) == labels.ConditionGPUReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
