package readiness

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// StageVerdict is the verdict on one stage of a node, and the operand that the stage depends on.
type StageVerdict struct {
	Stage   v1.Stage
	Operand string
	Verdict Verdict
}

// NodeVerdict is the verdict on a node as a whole.
type NodeVerdict struct {
	Verdict
	// Stage is the first stage that the node has not reached, or the last stage of a ready node.
	Stage v1.Stage
	// Operand that the verdict is about; empty if it is about none.
	Operand string
}

// Node returns the verdict of the first stage that is not ready. For a ready node it returns the first outdated one.
func Node(stages []StageVerdict) NodeVerdict {
	verdict := NodeVerdict{Stage: v1.StageValidated}
	for _, stage := range stages {
		if stage.Verdict.State != Ready {
			return NodeVerdict{Verdict: stage.Verdict, Stage: stage.Stage, Operand: stage.Operand}
		}
		if stage.Verdict.Outdated && !verdict.Outdated {
			verdict.Verdict, verdict.Operand = stage.Verdict, stage.Operand
		}
	}
	return verdict
}

// NodeCondition returns a condition of the node, nil if it has none of this type.
func NodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == kind {
			return condition
		}
	}
	return nil
}

// Kubelet reports whether the node is Ready. While the kubelet does not report, the statuses of the node's pods are
// stale.
func Kubelet(node *corev1.Node) Verdict {
	if condition := NodeCondition(node, corev1.NodeReady); condition != nil {
		switch condition.Status {
		case corev1.ConditionTrue:
			return Verdict{}
		case corev1.ConditionUnknown:
			return failed(v1.ReasonNodeUnreachable, "the kubelet stopped posting node status")
		case corev1.ConditionFalse:
			return progressing(v1.ReasonNodeNotReady, text.Join("the node is not ready", condition.Reason))
		}
	}
	return progressing(v1.ReasonNodeNotReady, "the kubelet has not reported the condition Ready of the node yet")
}

// Allocatable reports whether the node has an allocatable GPU, whole or MIG.
func Allocatable(node *corev1.Node) Verdict {
	if hasGPU(node.Status.Allocatable) {
		return Verdict{}
	}
	if hasGPU(node.Status.Capacity) {
		// Also while the device plugin restarts.
		return progressing(v1.ReasonNotAllocatable,
			"the device plugin is restarting or reports all GPUs as unhealthy")
	}
	return progressing(v1.ReasonNotAllocatable, "the node has no allocatable GPU")
}

func hasGPU(resources corev1.ResourceList) bool {
	for name, quantity := range resources {
		if labels.IsGPUResource(string(name)) && quantity.Sign() > 0 {
			return true
		}
	}
	return false
}
