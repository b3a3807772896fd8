package assess

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Input is what the assessment of one node is computed from.
type Input struct {
	// NodePlan for the node.
	NodePlan plan.NodePlan
	// Node as cached, and the operands' Pods there.
	Node *corev1.Node
	Pods Pods
	// Tenants are the pods of users with GPUs of the node, as namespace/name; read only if the MIG layout depends on them.
	Tenants []string
	// MIGCause are the words of the MIG manager about a MIG layout that it could not apply; empty if they are not known.
	// MIGCauseSought: they are not looked for any more.
	MIGCause       string
	MIGCauseSought bool
	// Stack is the same for all nodes.
	Stack Stack
	// Previous is the readiness of the node in the previous assessment; empty for none.
	Previous ReadySince
	// ForeignSince is that of the previous assessment.
	ForeignSince time.Time
	// RefusedPods describes the pods that the kubelet refused when the node booted; empty for none.
	RefusedPods string
	// HeldConfig is the configuration of the device plugin, as CONFIGMAP/KEY, whose changed content other nodes do not
	// read because pods do not work that have read it on this node; empty for none. It is reported once one of these pods
	// or the node fails.
	HeldConfig string
	// HeldFails: such a pod fails.
	HeldFails bool
	// Neighbours are what others run on the node; before they were first looked for, as after a start of the operator,
	// those in the node's record.
	Neighbours []neighbour.Neighbour
	// Now is the time of the assessment.
	Now time.Time

	// record is the one of upgradeRecord, and layout the verdict of migLayout: several checks need them.
	record *upgrade.Record
	layout readiness.Verdict
}

// ReadySince is whether a node is ready, and since when; zero if unknown.
type ReadySince struct {
	Ready bool
	Since time.Time
}

// ReadySinceOf returns the readiness that the condition nvidia.com/GPUReady reports, empty for nil.
func ReadySinceOf(condition *corev1.NodeCondition) ReadySince {
	if condition == nil {
		return ReadySince{}
	}
	return ReadySince{Ready: condition.Status == corev1.ConditionTrue, Since: condition.LastTransitionTime.Time}
}

// Assessment is the verdict on one node and on each operand there.
type Assessment struct {
	readiness.NodeVerdict
	// Operands that are expected on the node, each with its own verdict.
	Operands map[operand.Name]readiness.Verdict
	// Usable: every pod that tolerates the taints of the node can use the GPUs that are left.
	Usable bool
	// NothingOffers: the spec, a label or a nodeSelector leaves it to others to offer the GPUs of the node, nothing that
	// the operator knows does, and that alone keeps the node from being ready.
	NothingOffers bool
	// GPUs of the node; zero until it advertises them.
	GPUs readiness.GPUs
	// Offer is what pods can request on the node, empty if each GPU is one nvidia.com/gpu.
	Offer string
	// ForeignSince is since when the node has offered GPUs without the operator's device plugin; zero if it does not.
	ForeignSince time.Time
	// lost are the GPUs that the validator has found missing since.
	lost struct {
		count int
		words string
	}
	// noted is what checks have found for the record of the node.
	noted notes
	// Health is what the health agent of the node reports; nil if the node has none.
	Health *Health
	// Excluded: the spec or a label keeps operands off the node, so it is not counted.
	Excluded bool
	// Since is when the node became ready, or not ready.
	Since time.Time
	// At is the time of the assessment.
	At time.Time
}

// Ready reports whether the node is ready.
func (a *Assessment) Ready() bool { return a.State == readiness.Ready }

// InService reports whether all that the operator is to do on the node has worked: the GPUs can be used, or nothing
// that it knows offers them although all else works. Such GPUs may be in use all the same, by a RuntimeClass alone or
// by a scheduler with resources of its own, so that upgrades of drivers and start-up taints do not wait for an offer.
func (a *Assessment) InService() bool { return a.Usable || a.NothingOffers }

// ReadySince returns the readiness of the node in this assessment.
func (a *Assessment) ReadySince() ReadySince { return ReadySince{Ready: a.Ready(), Since: a.Since} }

// Node assesses a GPU node.
func Node(in Input) Assessment {
	assessment := Assessment{
		Operands: map[operand.Name]readiness.Verdict{},
		Excluded: in.NodePlan.Facts.ExcludedByLabel || in.NodePlan.Unselected != "",
	}
	if !slices.ContainsFunc(decisions, func(c Check) bool { return assessment.apply(c, in) }) {
		assessment.assess(in)
	}
	assessment.Since, assessment.At = in.since(assessment.Ready()), in.Now
	return assessment
}

// since returns since when the node is ready, or is not, as it is now.
func (in *Input) since(isReady bool) time.Time {
	if in.Previous.Ready == isReady && !in.Previous.Since.IsZero() {
		return in.Previous.Since
	}
	return in.Now
}

// assess assesses the operands of a node that has some, and so its stages, and makes the checks.
func (a *Assessment) assess(in Input) {
	in.record, in.layout = upgradeRecord(in.Node), in.migLayout()
	verdict := func(onNode plan.OperandOnNode) readiness.Verdict {
		found := in.Stack.checkRuntimeHandler(onNode, in.NodePlan.Essential, in.Pods, assessOperand(onNode, in))
		return a.noteLostGPUs(in, onNode, found)
	}
	a.assessEssential(in, verdict)
	for _, onNode := range in.NodePlan.Auxiliary {
		if onNode.Expectation != plan.OptedOut && onNode.Expectation != plan.HostProvides {
			a.Operands[onNode.Operand] = verdict(onNode)
		}
	}
	if in.layout.State != readiness.Ready {
		a.Operands[in.NodePlan.Partitioner] = in.layout
	}
	if in.NodePlan.HealthReporter != "" {
		a.Health = HealthOf(in.Node)
	}
	a.Usable, a.GPUs, a.Offer, a.ForeignSince = a.Ready(), a.countGPUs(in), in.offer(a.Stage), in.foreignSince()
	if a.Offer == claimsOffer {
		a.noted.neighbours = []neighbour.Neighbour{*in.offeredByClaims()}
	}
	for _, check := range checks {
		a.apply(check, in)
	}
	a.settleOperands(in)
}

// settleOperands turns failures of operands into progress during a driver upgrade, whose deadlines apply. Otherwise, on
// a ready node, auxiliary operands fail that have been progressing for longer than the deadline of the spec.
func (a *Assessment) settleOperands(in Input) {
	upgrades := in.upgrades()
	for _, onNode := range in.NodePlan.Auxiliary {
		verdict, expected := a.Operands[onNode.Operand]
		if expected && a.Ready() && !upgrades && onNode.Expectation == plan.Expected {
			from := in.since(true)
			if pod := in.Pods[onNode.Operand]; pod != nil {
				from = times.Later(from, readiness.UnreadySince(pod))
			}
			a.Operands[onNode.Operand] = readiness.ApplyDeadline(in.NodePlan.Spec.Deadline(""), verdict, from, in.Now)
		}
	}
	for name, found := range a.Operands {
		if upgrades && found.State == readiness.Failed {
			found.State = readiness.Progressing
			a.Operands[name] = found
		}
		a.Until = times.Earlier(a.Until, found.Until)
	}
}

// DiscoveryOperands assesses the operands that discover GPUs, on a node that has no discovery labels yet.
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

// assessEssential assesses the essential operands and so the stages of the node, in order.
func (a *Assessment) assessEssential(in Input, verdict func(plan.OperandOnNode) readiness.Verdict) {
	stages := []readiness.StageVerdict{{Stage: v1.StageDiscovered, Verdict: readiness.Kubelet(in.Node)}}
	optedOut, plugin := "", operand.Name("")
	for _, onNode := range in.NodePlan.Essential {
		if in.NodePlan.NeedsAllocatable && onNode.Stage == v1.StageValidated {
			var stage readiness.StageVerdict
			stage, a.NothingOffers = allocatable(in, plugin, optedOut)
			stages = append(stages, stage)
		}
		if onNode.Expectation == plan.OptedOut {
			optedOut = onNode.Message
		} else if onNode.Stage == v1.StageDevicePlugin {
			plugin = onNode.Operand
		}
		found := verdict(onNode)
		if onNode.Expectation == plan.Expected || onNode.Expectation == plan.PausedByLabel || onNode.Undeclared() {
			a.Operands[onNode.Operand] = found
		}
		stages = append(stages, readiness.StageVerdict{
			Stage: onNode.Stage, Operand: string(onNode.Operand), Verdict: found,
		})
	}
	a.NodeVerdict = readiness.Node(stages)
	if a.NothingOffers {
		others := slices.DeleteFunc(stages, func(s readiness.StageVerdict) bool { return s.Stage == v1.StageAllocatable })
		a.NothingOffers = readiness.Node(others).State == readiness.Ready
	}
}

// findMove finds that a node has the driver of a pool other than its own.
func findMove(in Input, _ Assessment) finding {
	if !in.NodePlan.Moves() {
		return finding{}
	}
	return outdated(fmt.Sprintf("%s; it moves from %s to %s",
		pendingUpgrade(in.NodePlan, isRequested(in.Node)), in.NodePlan.Facts.Pool, in.NodePlan.Pool.Name))
}

func outdated(message string) finding {
	return verdictAt("", "", readiness.Verdict{Outdated: true, Reason: v1.ReasonUpgradePending, Message: message})
}

func findExcluded(in Input, _ Assessment) finding {
	return atDiscovered(in.NodePlan.Facts.ExcludedByLabel, readiness.Progressing, v1.ReasonExcluded,
		fmt.Sprintf("label %s is %q", labels.DeployOperands, labels.False))
}

func findRefused(in Input, _ Assessment) finding {
	decision := in.NodePlan.Decision
	return atDiscovered(decision.Choice == operand.Refused, readiness.Failed, decision.Reason, decision.Message)
}

func findUnselected(in Input, _ Assessment) finding {
	unselected := in.NodePlan.Unselected
	return atDiscovered(unselected != "", readiness.Progressing, v1.ReasonNotSelected, unselected)
}

// atDiscovered is the finding about a node that stays at stage Discovered; none unless it does.
func atDiscovered(stays bool, state readiness.State, reason, message string) (found finding) {
	if stays {
		found.Stage, found.State, found.Reason, found.Message = v1.StageDiscovered, state, reason, message
	}
	return found
}

// allocatable returns the verdict on stage Allocatable. plugin is empty if the operator runs no device plugin on the
// node. optedOut is why an operand is off there by a label or a nodeSelector; empty if none is. It reports
// nothingOffers if that, or the spec, is why nothing offers the GPUs.
func allocatable(in Input, plugin operand.Name, optedOut string) (stage readiness.StageVerdict, nothingOffers bool) {
	stage = readiness.StageVerdict{
		Stage: v1.StageAllocatable, Operand: string(plugin), Verdict: readiness.Allocatable(in.Node),
	}
	if stage.Verdict.State == readiness.Ready {
		return stage, false
	}
	if in.offeredByClaims() != nil {
		stage.Verdict = readiness.Verdict{}
		return stage, false
	}
	off := cmp.Or(optedOut, in.NodePlan.PluginOff)
	switch {
	case plugin == "" && off != "":
		// What the kubelet still counts is of a device plugin that is gone.
		stage.Verdict.Reason = v1.ReasonDevicePluginOff
		stage.Verdict.Message = "nothing offers the GPUs of the node: " + off
		return stage, true
	case off != "":
		stage.Verdict.Message += "; " + off
	default:
		if container := in.Stack.mainContainer(in.Pods[plugin]); container != "" {
			stage.Verdict.Message += ": see the log of container " + container
		}
	}
	return stage, false
}

func assessOperand(onNode plan.OperandOnNode, in Input) readiness.Verdict {
	pod := in.Pods[onNode.Operand]
	switch onNode.Expectation {
	case plan.HostProvides, plan.OptedOut:
		return readiness.Verdict{}
	case plan.PausedByLabel:
		return readiness.Verdict{State: readiness.Progressing, Reason: onNode.Reason, Message: onNode.Message}
	case plan.Refused:
		// A pod that runs already is not removed and may work.
		if pod == nil {
			return readiness.Verdict{State: readiness.Failed, Reason: onNode.Reason, Message: onNode.Message}
		}
	case plan.Expected:
	}
	if pod == nil {
		return in.missing(onNode)
	}
	ds := daemonSetOf(pod, in.Stack.DaemonSets)
	if ds == nil {
		return readiness.Pod(pod, pod.Annotations[labels.TemplateDigest], in.Now)
	}
	verdict := in.ofPod(pod, ds)
	if onNode.Stage == v1.StageDriver {
		verdict = explainKernel(verdict, in.NodePlan)
	}
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		verdict.Outdated, verdict.BeingReplaced = false, verdict.Outdated
	}
	if verdict.Outdated && verdict.State == readiness.Ready {
		verdict.Reason, verdict.Message = v1.ReasonUpgradePending, outdatedMessage(in, onNode, pod)
	}
	return explainUndeclared(verdict, onNode)
}

// ofPod returns the verdict on a pod of a DaemonSet, which names the pod if that has failed.
func (in *Input) ofPod(pod *corev1.Pod, ds *appsv1.DaemonSet) readiness.Verdict {
	verdict := in.Stack.explainStart(readiness.Pod(pod, ds.Annotations[labels.TemplateDigest], in.Now), pod)
	if verdict.State == readiness.Failed {
		verdict.Pod = pod.Name
	}
	return verdict
}

// explainUndeclared gives the verdict on a ready driver the reason why it stays as it is, if NVIDIADriver objects
// declare none: nothing replaces it meanwhile, outdated or not.
func explainUndeclared(verdict readiness.Verdict, onNode plan.OperandOnNode) readiness.Verdict {
	if onNode.Undeclared() && verdict.State == readiness.Ready {
		verdict.Outdated, verdict.Reason, verdict.Message = false, onNode.Reason, onNode.Message
	}
	return verdict
}

// IsCurrent reports whether a pod has the current template of its DaemonSet.
func (s Stack) IsCurrent(pod *corev1.Pod) bool {
	ds := daemonSetOf(pod, s.DaemonSets)
	return ds != nil && pod.Annotations[labels.TemplateDigest] == ds.Annotations[labels.TemplateDigest]
}

func daemonSetOf(pod *corev1.Pod, daemonSets map[string]*appsv1.DaemonSet) *appsv1.DaemonSet {
	if controller := metav1.GetControllerOf(pod); controller != nil {
		return daemonSets[controller.Name]
	}
	return nil
}
