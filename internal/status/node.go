package status

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// NodeAssessment is the verdict on one node and on each operand there.
type NodeAssessment struct {
	readiness.NodeVerdict
	// Operands that are expected on the node, each with its own verdict.
	Operands map[operand.Name]readiness.Verdict
	// Usable: the GPUs can be used, by whoever tolerates the taints of the node.
	Usable bool
	// Excluded: the node is kept free of operands, and is not counted.
	Excluded bool
}

// AssessNode puts together what is known of one node at this time: what it needs by the plan, and how its pods
// and its kubelet are.
func AssessNode(node plan.Node, object *corev1.Node, pods observe.NodePods, stack Stack, now time.Time) NodeAssessment {
	assessment := NodeAssessment{Operands: map[operand.Name]readiness.Verdict{}, Excluded: node.Facts.Excluded || node.Unselected != ""}
	if node.Facts.Excluded {
		assessment.NodeVerdict = excluded()
		return assessment
	}
	if node.Refused.Verdict == operand.Invalid {
		assessment.NodeVerdict = readiness.NodeVerdict{Stage: v1.StageDiscovered, Verdict: readiness.Verdict{
			State: readiness.Failed, Reason: node.Refused.Reason, Message: node.Refused.Message,
		}}
		return assessment
	}
	if node.Unselected != "" {
		assessment.NodeVerdict = unselected(node)
		return assessment
	}
	verdict := func(rung plan.Rung) readiness.Verdict {
		return stack.awaitHandler(rung, node.Rungs, pods, assessRung(rung, object, pods[rung.Operand], stack, now))
	}
	assessment.climb(node, object, verdict, func(name operand.Name) string { return stack.mainContainer(pods[name]) })
	for _, rung := range node.Beside {
		if rung.Need != plan.OptedOut && rung.Need != plan.HostProvides {
			assessment.Operands[rung.Operand] = verdict(rung)
		}
	}
	assessment.judgeTaints(node, object)
	assessment.judgeDeadlines(node, object, pods, now)
	for _, found := range assessment.Operands {
		assessment.Until = sooner(assessment.Until, found.Until)
	}
	assessment.judgePool(node)
	assessment.judgeSelection(node)
	assessment.judgeDiscovery(node, object)
	return assessment
}

// climb judges the rungs of the ladder. container names that of an operand's pod on the node.
func (assessment *NodeAssessment) climb(node plan.Node, object *corev1.Node, verdict func(plan.Rung) readiness.Verdict,
	container func(operand.Name) string,
) {
	rungs := []readiness.Rung{{Stage: v1.StageDiscovered, Verdict: readiness.Kubelet(object)}}
	optedOut, plugin := "", operand.Name("")
	for _, rung := range node.Rungs {
		if node.NeedsAllocatable && rung.Stage == v1.StageValidated {
			rungs = append(rungs, allocatable(object, plugin, container(plugin), optedOut))
		}
		if rung.Need == plan.OptedOut {
			optedOut = rung.Message
		} else if rung.Stage == v1.StageDevicePlugin {
			plugin = rung.Operand
		}
		found := verdict(rung)
		if rung.Need == plan.Expected || rung.Need == plan.Paused {
			assessment.Operands[rung.Operand] = found
		}
		rungs = append(rungs, readiness.Rung{Stage: rung.Stage, Operand: string(rung.Operand), Verdict: found})
	}
	assessment.NodeVerdict = readiness.Node(rungs)
}

// judgePool tells that a node that is ready has the driver of another pool than its own.
func (assessment *NodeAssessment) judgePool(node plan.Node) {
	labelled, wanted := node.Facts.Pool, node.Pool.Name
	if wanted != "" && assessment.State == readiness.Ready && labelled != "" && labelled != wanted {
		assessment.Outdated, assessment.Reason = true, v1.ReasonUpgradePending
		// The command comes first, as a long message is cut in the policy's status.
		assessment.Message = fmt.Sprintf("run kubectl label node %s %s- to move the driver from %s to %s",
			node.Facts.Name, labels.Pool, labelled, wanted)
	}
}

// sooner is the first of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func excluded() readiness.NodeVerdict {
	return readiness.NodeVerdict{Stage: v1.StageDiscovered, Verdict: readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonExcluded,
		Message: fmt.Sprintf("label %s is %q", labels.DeployOperands, labels.False),
	}}
}

// allocatable is the rung that the device plugin leads to, empty where it is kept off the node.
func allocatable(object *corev1.Node, plugin operand.Name, container, optedOut string) readiness.Rung {
	rung := readiness.Rung{Stage: v1.StageAllocatable, Operand: string(plugin), Verdict: readiness.Allocatable(object)}
	switch {
	case rung.Verdict.State == readiness.Ready:
	case optedOut != "":
		rung.Verdict.Message += "; " + optedOut
	case container != "":
		rung.Verdict.Message += ": see the log of container " + container
	}
	return rung
}

func assessRung(rung plan.Rung, node *corev1.Node, pod *corev1.Pod, stack Stack, now time.Time) readiness.Verdict {
	switch rung.Need {
	case plan.HostProvides, plan.OptedOut:
		return readiness.Verdict{}
	case plan.Paused:
		return readiness.Verdict{State: readiness.Progressing, Reason: rung.Reason, Message: rung.Message}
	case plan.NotPossible:
		// What runs is left alone, and may well do its work.
		if pod == nil {
			return readiness.Verdict{State: readiness.Failed, Reason: rung.Reason, Message: rung.Message}
		}
	case plan.Expected:
	}
	if pod == nil {
		return stack.missing(rung.Operand, node)
	}
	ds := daemonSetOf(pod, stack.DaemonSets)
	if ds == nil {
		return readiness.Pod(pod, pod.Annotations[labels.TemplateDigest], now)
	}
	verdict := readiness.Pod(pod, ds.Annotations[labels.TemplateDigest], now)
	// A DaemonSet that rolls replaces outdated pods by itself.
	verdict.Outdated = verdict.Outdated && ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	if verdict.Outdated && verdict.State == readiness.Ready {
		verdict.Reason = v1.ReasonUpgradePending
		verdict.Message = fmt.Sprintf("%s is outdated: kubectl -n %s delete pod %s", rung.Operand, pod.Namespace, pod.Name)
	}
	return verdict
}

func daemonSetOf(pod *corev1.Pod, daemonSets map[string]*appsv1.DaemonSet) *appsv1.DaemonSet {
	if controller := metav1.GetControllerOf(pod); controller != nil {
		return daemonSets[controller.Name]
	}
	return nil
}

// NodeCondition is the condition nvidia.com/GPUReady that an assessment gives a node.
func NodeCondition(node string, assessment NodeAssessment) corev1.NodeCondition {
	verdict := assessment.NodeVerdict
	condition := corev1.NodeCondition{Type: labels.ConditionGPUReady, Status: corev1.ConditionTrue, Reason: v1.ReasonGPUReady}
	switch {
	case verdict.State != readiness.Ready:
		condition.Status, condition.Reason = corev1.ConditionFalse, verdict.Reason
		condition.Message = join(NodeCause(node, assessment), verdict.Detail)
	case verdict.Outdated, verdict.Reason == v1.ReasonDiscoveryLabelsMissing:
		condition.Reason = verdict.Reason
		condition.Message = fmt.Sprintf("%s: GPUs can be used; %s", node, verdict.Message)
	default:
		condition.Message = strings.TrimSuffix(node+": GPUs can be used; "+verdict.Message, "; ")
	}
	return condition
}

// NodeCause is the message of the condition of a node that is not ready, without what changes while
// the cause is the same.
func NodeCause(node string, assessment NodeAssessment) string {
	return fmt.Sprintf("%s: stage %s%s: %s", node, assessment.Stage, ofOperand(assessment.Operand), assessment.Message)
}

// Says tells whether a message said before need not be replaced by this one, which has the cause and
// may go on with a detail. The detail may change with each attempt of a container, or be missing after
// one; it is no news while the cause is the same. The first one is.
func Says(before, cause, message string) bool {
	return before == message || strings.HasPrefix(before, cause+": ")
}

func ofOperand(name string) string {
	if name == "" {
		return ""
	}
	return ", operand " + name
}

// GPUReadyCondition reads the condition nvidia.com/GPUReady of a node, nil if it has none.
func GPUReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if string(node.Status.Conditions[i].Type) == labels.ConditionGPUReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
