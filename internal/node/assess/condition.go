package assess

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// Condition returns the condition nvidia.com/GPUReady of the node with this name, without times.
func (a *Assessment) Condition(node string) corev1.NodeCondition {
	condition := corev1.NodeCondition{
		Type: labels.ConditionGPUReady, Status: corev1.ConditionTrue, Reason: v1.ReasonGPUReady,
	}
	switch {
	case !a.Ready():
		condition.Status, condition.Reason = corev1.ConditionFalse, a.Reason
		condition.Message = WithDetail(a.Cause(node), a.Detail)
	case a.Outdated, limitedReasons.Has(a.Reason):
		condition.Reason = a.Reason
		condition.Message = fmt.Sprintf("%s: GPUs can be used; %s", node, a.Message)
	default:
		condition.Message = strings.TrimSuffix(node+": GPUs can be used; "+a.Message, "; ")
	}
	return condition
}

// Cause returns the message of the condition of a node that is not ready, without the detail. It is stable while the
// cause is the same.
func (a *Assessment) Cause(node string) string {
	return node + ": " + causePrefix(a.Stage, a.Operand) + a.Message
}

// causePrefix precedes what is wrong in the message of a node that is not ready.
func causePrefix(stage v1.Stage, operand string) string {
	if operand == "" {
		return fmt.Sprintf("stage %s: ", stage)
	}
	return fmt.Sprintf("stage %s, operand %s: ", stage, operand)
}

// MessageUpToDate reports whether the written message need not be replaced by message, which is the cause with an
// optional detail. The first detail is written. A detail that changes or disappears while the cause is the same is not,
// because it may change with each restart of a container. A detail of another pod is written: see Record.
func MessageUpToDate(written, cause, message string) bool {
	return written == message || strings.HasPrefix(written, cause+": ")
}

// WithDetail joins a message and its detail, either of which may be empty.
func WithDetail(message, detail string) string { return strings.TrimSuffix(message+": "+detail, ": ") }

// GPUReadyCondition returns the condition nvidia.com/GPUReady of a node, nil if it has none.
func GPUReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	return readiness.NodeCondition(node, labels.ConditionGPUReady)
}

// GPUHealthyCondition returns the condition nvidia.com/GPUHealthy of a node, nil if it has none.
func GPUHealthyCondition(node *corev1.Node) *corev1.NodeCondition {
	return readiness.NodeCondition(node, labels.ConditionGPUHealthy)
}
