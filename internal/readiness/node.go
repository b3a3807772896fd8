package readiness

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Rung is one step of a node's ladder with the verdict on it.
type StageVerdict struct {
	Stage   v1.Stage
	Operand string
	Verdict Verdict
}

// NodeVerdict tells how far up the ladder a node is.
type NodeVerdict struct {
	Verdict
	// Stage is the first one not reached, or the last one of a ready node.
	Stage v1.Stage
	// Operand that holds the node up; empty when it is none's fault.
	Operand string
}

// Node climbs the ladder from the bottom and stops at the first stage that does not hold.
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

// Kubelet tells whether the node's kubelet answers. Without it, what the API shows of the node's
// pods is what was true long ago.
func Kubelet(node *corev1.Node) Verdict {
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		if condition.Type != corev1.NodeReady {
			continue
		}
		switch condition.Status {
		case corev1.ConditionTrue:
			return Verdict{}
		case corev1.ConditionUnknown:
			return failed(v1.ReasonNodeUnreachable, "the kubelet does not answer")
		case corev1.ConditionFalse:
			return progressing(v1.ReasonNodeNotReady, "the node is not ready: "+condition.Reason)
		}
	}
	return progressing(v1.ReasonNodeNotReady, "the kubelet has not reported yet")
}

// Allocatable tells whether the kubelet advertises a GPU, whole or MIG, that can be given to a pod.
func Allocatable(node *corev1.Node) Verdict {
	if hasGPU(node.Status.Allocatable) {
		return Verdict{}
	}
	if hasGPU(node.Status.Capacity) {
		// So it is also while the device plugin starts anew.
		return progressing(v1.ReasonNotAllocatable,
			"the kubelet holds all of the GPUs for unhealthy")
	}
	return progressing(v1.ReasonNotAllocatable, "the kubelet advertises no GPU that can be allocated")
}

func hasGPU(resources corev1.ResourceList) bool {
	for name, quantity := range resources {
		if labels.IsGPUResource(string(name)) && quantity.Sign() > 0 {
			return true
		}
	}
	return false
}
