package assess

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/times"
)

// Input is all that the assessment of one node follows from.
type Input struct {
	// Plan is what the spec decides for the node.
	Plan plan.Node
	// Node as the cache has it, and the operands' Pods there.
	Node *corev1.Node
	Pods Pods
	// Stack is what is known of the stack's objects, the same for all nodes.
	Stack Stack
	// Previous is the readiness of the node by the assessment before; empty for none.
	Previous Readiness
	// Now is the time of the assessment.
	Now time.Time
}

// Readiness is whether a node is ready, and since when. An unknown time is zero.
type Readiness struct {
	Ready bool
	Since time.Time
}

// ReadinessOf returns the standing that the condition nvidia.com/GPUReady reports, the empty one for nil.
func ReadinessOf(condition *corev1.NodeCondition) Readiness {
	if condition == nil {
		return Readiness{}
	}
	return Readiness{Ready: condition.Status == corev1.ConditionTrue, Since: condition.LastTransitionTime.Time}
}

// Assessment is the verdict on one node and on each operand there.
type Assessment struct {
	readiness.NodeVerdict
	// Operands that are expected on the node, each with its own verdict.
	Operands map[operand.Name]readiness.Verdict
	// Usable: the GPUs can be used by every pod that tolerates the taints of the node.
	Usable bool
	// Excluded: the node is kept free of operands, and is not counted.
	Excluded bool
	// Since is since when the node has been ready, or not ready.
	Since time.Time
	// At is when it was assessed.
	At time.Time
}

// Ready reports whether the node is ready.
func (a *Assessment) Ready() bool { return a.State == readiness.Ready }

// Readiness of the node by this assessment.
func (a *Assessment) Readiness() Readiness { return Readiness{Ready: a.Ready(), Since: a.Since} }

// Node assesses a GPU node: what it needs by the plan, and how its pods and its kubelet are.
func Node(in Input) Assessment {
	assessment := Assessment{Operands: map[operand.Name]readiness.Verdict{}, Excluded: in.Plan.Facts.Excluded || in.Plan.Unselected != ""}
	switch {
	case in.Plan.Facts.Excluded:
		assessment.NodeVerdict = excluded()
	case in.Plan.Refused.Verdict == operand.Invalid:
		assessment.NodeVerdict = refused(in.Plan.Refused)
	case in.Plan.Unselected != "":
		assessment.NodeVerdict = notSelected(in.Plan)
	default:
		assessment.assess(in)
	}
	assessment.Since, assessment.At = in.Now, in.Now
	if in.Previous.Ready == assessment.Ready() && !in.Previous.Since.IsZero() {
		assessment.Since = in.Previous.Since
	}
	return assessment
}

// assess is the chain of checks of a node that operands serve.
func (a *Assessment) assess(in Input) {
	verdict := func(stage plan.Rung) readiness.Verdict {
		return in.Stack.checkRuntimeHandler(stage, in.Plan.Rungs, in.Pods, assessStage(stage, in))
	}
	a.assessStages(in, verdict)
	for _, stage := range in.Plan.Beside {
		if stage.Need != plan.OptedOut && stage.Need != plan.HostProvides {
			a.Operands[stage.Operand] = verdict(stage)
		}
	}
	a.checkTaints(in)
	a.checkDeadlines(in)
	for _, found := range a.Operands {
		a.Until = times.Sooner(a.Until, found.Until)
	}
	a.checkPool(in.Plan)
	a.checkSelection(in.Plan)
	a.checkDiscovery(in)
}

// DiscoveryOperands assesses the operands that discover GPUs on a node that has not been discovered yet.
func DiscoveryOperands(catalogue operand.Catalogue, pods Pods, now time.Time) map[operand.Name]readiness.Verdict {
	var found map[operand.Name]readiness.Verdict
	for i := range catalogue {
		name := catalogue[i].Name
		pod := pods[name]
		if !catalogue[i].Discovers || pod == nil {
			continue
		}
		if found == nil {
			found = map[operand.Name]readiness.Verdict{}
		}
		found[name] = readiness.Pod(pod, pod.Annotations[labels.TemplateDigest], now)
	}
	return found
}

// assessStages assesses the stages of the ladder.
func (a *Assessment) assessStages(in Input, verdict func(plan.Rung) readiness.Verdict) {
	stages := []readiness.StageVerdict{{Stage: v1.StageDiscovered, Verdict: readiness.Kubelet(in.Node)}}
	optedOut, plugin := "", operand.Name("")
	for _, stage := range in.Plan.Rungs {
		if in.Plan.NeedsAllocatable && stage.Stage == v1.StageValidated {
			stages = append(stages, allocatable(in, plugin, optedOut))
		}
		if stage.Need == plan.OptedOut {
			optedOut = stage.Message
		} else if stage.Stage == v1.StageDevicePlugin {
			plugin = stage.Operand
		}
		found := verdict(stage)
		if stage.Need == plan.Expected || stage.Need == plan.Paused {
			a.Operands[stage.Operand] = found
		}
		stages = append(stages, readiness.StageVerdict{Stage: stage.Stage, Operand: string(stage.Operand), Verdict: found})
	}
	a.NodeVerdict = readiness.Node(stages)
}

// checkPool reports that a ready node has the driver of another pool than its own.
func (a *Assessment) checkPool(node plan.Node) {
	labelled, wanted := node.Facts.Pool, node.Pool.Name
	if wanted != "" && a.Ready() && labelled != "" && labelled != wanted {
		a.Outdated, a.Reason = true, v1.ReasonUpgradePending
		// The command comes first, as a long message is cut in the policy's status.
		a.Message = fmt.Sprintf("run kubectl label node %s %s- %s- to move the driver from %s to %s",
			node.Facts.Name, labels.Pool, labels.DriverAnchor, labelled, wanted)
	}
}

func excluded() readiness.NodeVerdict {
	return atDiscovered(readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonExcluded,
		Message: fmt.Sprintf("label %s is %q", labels.DeployOperands, labels.False),
	})
}

func refused(decision operand.Decision) readiness.NodeVerdict {
	return atDiscovered(readiness.Verdict{State: readiness.Failed, Reason: decision.Reason, Message: decision.Message})
}

// atDiscovered is the verdict on a node that gets nothing beyond its discovery.
func atDiscovered(verdict readiness.Verdict) readiness.NodeVerdict {
	return readiness.NodeVerdict{Stage: v1.StageDiscovered, Verdict: verdict}
}

// allocatable is the stage that the device plugin leads to; plugin is empty where it is kept off the node.
func allocatable(in Input, plugin operand.Name, optedOut string) readiness.StageVerdict {
	stage := readiness.StageVerdict{Stage: v1.StageAllocatable, Operand: string(plugin), Verdict: readiness.Allocatable(in.Node)}
	if stage.Verdict.State == readiness.Ready {
		return stage
	}
	if optedOut != "" {
		stage.Verdict.Message += "; " + optedOut
	} else if container := in.Stack.mainContainer(in.Pods[plugin]); container != "" {
		stage.Verdict.Message += ": see the log of container " + container
	}
	return stage
}

func assessStage(stage plan.Rung, in Input) readiness.Verdict {
	pod := in.Pods[stage.Operand]
	switch stage.Need {
	case plan.HostProvides, plan.OptedOut:
		return readiness.Verdict{}
	case plan.Paused:
		return readiness.Verdict{State: readiness.Progressing, Reason: stage.Reason, Message: stage.Message}
	case plan.NotPossible:
		// What runs is left alone, and may well do its work.
		if pod == nil {
			return readiness.Verdict{State: readiness.Failed, Reason: stage.Reason, Message: stage.Message}
		}
	case plan.Expected:
	}
	if pod == nil {
		return in.missing(stage)
	}
	ds := daemonSetOf(pod, in.Stack.DaemonSets)
	if ds == nil {
		return readiness.Pod(pod, pod.Annotations[labels.TemplateDigest], in.Now)
	}
	verdict := readiness.Pod(pod, ds.Annotations[labels.TemplateDigest], in.Now)
	// A DaemonSet that rolls replaces outdated pods by itself.
	verdict.Outdated = verdict.Outdated && ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	if verdict.Outdated && verdict.State == readiness.Ready {
		verdict.Reason = v1.ReasonUpgradePending
		verdict.Message = fmt.Sprintf("%s is outdated: kubectl -n %s delete pod %s", stage.Operand, pod.Namespace, pod.Name)
	}
	return verdict
}

func daemonSetOf(pod *corev1.Pod, daemonSets map[string]*appsv1.DaemonSet) *appsv1.DaemonSet {
	if controller := metav1.GetControllerOf(pod); controller != nil {
		return daemonSets[controller.Name]
	}
	return nil
}
