package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// stages from the bottom of the ladder.
var stages = []v1.Stage{
	v1.StageDiscovered, v1.StageDriver, v1.StageToolkit, v1.StageDevicePlugin, v1.StageAllocatable, v1.StageValidated,
}

// judgeDeadlines holds what is on its way against the deadlines of the spec: the node where it is not ready, and
// the operands beside the ladder where it is. Since when is read from the node's condition and its pods, so that
// nothing has to be remembered.
func (assessment *NodeAssessment) judgeDeadlines(node plan.Node, object *corev1.Node, pods observe.NodePods, now time.Time) {
	condition := GPUReadyCondition(object)
	if condition == nil || (condition.Status == corev1.ConditionTrue) != (assessment.State == readiness.Ready) {
		// It has only now come to be as it is, and the condition will tell since when.
		return
	}
	since := condition.LastTransitionTime.Time
	if assessment.State == readiness.Ready {
		for _, rung := range node.Beside {
			if verdict, expected := assessment.Operands[rung.Operand]; expected && rung.Need == plan.Expected {
				assessment.Operands[rung.Operand] = readiness.Within(node.Spec.Deadline(""), verdict, later(since, unready(pods[rung.Operand])), now)
			}
		}
		return
	}
	if assessment.Reason == v1.ReasonOperandPaused {
		return // Whoever has paused it decides when it goes on.
	}
	at := slices.Index(stages, assessment.Stage)
	for _, rung := range node.Rungs {
		if pod := pods[rung.Operand]; pod != nil && slices.Index(stages, rung.Stage) < at {
			since = later(since, readiness.ReadySince(pod))
		}
	}
	assessment.Verdict = readiness.Within(node.Spec.Deadline(assessment.Stage), assessment.Verdict, since, now)
	if name := operand.Name(assessment.Operand); name != "" {
		assessment.Operands[name] = assessment.Verdict
	}
}

// unready is since when a pod has not been ready, zero where there is none.
func unready(pod *corev1.Pod) time.Time {
	if pod == nil {
		return time.Time{}
	}
	return readiness.UnreadySince(pod)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
