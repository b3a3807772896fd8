package assess

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// checkGPUs reports a node that has lost GPUs. It is not ready if fewer are usable than spec.health.minUsable requires,
// but its GPUs stay usable: no driver upgrade and no start-up taint waits for hardware.
func (a *Assessment) checkGPUs(in Input) {
	// The count of another mode would be stale.
	countsBus := in.NodePlan.Spec.NodeDiscovery.Mode != v1.DiscoveryNFD
	counted := readiness.CountGPUs(in.Node, countsBus, in.NodePlan.GPUReplicas)
	if _, offered := in.offeredByClaims(); offered {
		counted = readiness.ClaimableGPUs(in.Node, countsBus)
	}
	a.GPUs = counted.WithFaults(a.Health.faults()).WithLost(a.lost.count, a.lost.words)
	a.Offer = readiness.Offer(in.Node, in.NodePlan.GPUReplicas)
	if a.State != readiness.Ready && a.Stage.Before(v1.StageAllocatable) {
		// What a device plugin that ends again and again advertises in between is of no use.
		a.GPUs.Usable = 0
	}
	if !in.NodePlan.NeedsAllocatable || a.State != readiness.Ready {
		return
	}
	verdict := a.GPUs.Verdict(*in.NodePlan.Spec.Health.MinUsable)
	if verdict.State == readiness.Ready {
		a.addCause(verdict.Reason, verdict.Message)
		return
	}
	// Too few GPUs are worse than what a ready node has to say, such as an outdated driver.
	verdict.Outdated = a.Outdated
	verdict.Message = strings.TrimSuffix(verdict.Message+"; "+a.Message, "; ")
	a.NodeVerdict = readiness.NodeVerdict{Verdict: verdict, Stage: v1.StageAllocatable}
}

// addCause gives a ready node the reason and the message. The reason of an earlier check stays, and the message follows
// its message. An empty reason adds nothing.
func (a *Assessment) addCause(reason, message string) {
	switch {
	case reason == "":
	case a.Reason == "":
		a.Reason, a.Message = reason, message
	default:
		a.Message += "; " + message
	}
}

// lostGPUs are the GPUs that have been lost since the validation: their number, and the validator's words.
type lostGPUs struct {
	count int
	words string
}

// noteLostGPUs returns the verdict on the validator without the loss of some GPUs: it is reported with the count of
// GPUs, and those that are left can be used.
func (a *Assessment) noteLostGPUs(in Input, onNode plan.OperandOnNode, verdict readiness.Verdict) readiness.Verdict {
	pod := in.Pods[onNode.Operand]
	if onNode.Stage != v1.StageValidated || pod == nil || verdict.Reason != v1.ReasonCrashLoopBackOff {
		return verdict
	}
	exit := readiness.UnrecoveredExit(pod, in.Now)
	if exit == nil || exit.ExitCode <= labels.ExitGPUsLost || exit.ExitCode > labels.ExitGPUsLost+labels.MaxExitGPUsLost {
		return verdict
	}
	a.lost = lostGPUs{int(exit.ExitCode) - labels.ExitGPUsLost, readiness.LastLine(exit.Message)}
	return readiness.Verdict{Until: verdict.Until, BeingReplaced: verdict.BeingReplaced}
}

// checkPluginConfig reports that the configuration which the node selects by its label is not used. If the device
// plugin does not start because of it, that is the cause.
func (a *Assessment) checkPluginConfig(in Input) {
	problem := in.NodePlan.PluginConfig
	switch {
	case problem == (operand.ConfigProblem{}):
	case a.Ready():
		a.addCause(v1.ReasonPluginConfigInvalid, problem.Message)
	case !a.Ready() && problem.Fatal && a.Stage == v1.StageDevicePlugin && a.Reason != v1.ReasonOperandPaused &&
		a.Reason != v1.ReasonMIGConfigPending:
		a.State, a.Reason, a.Message, a.Detail = readiness.Failed, v1.ReasonPluginConfigInvalid, problem.Message, ""
		a.Operands[operand.Name(a.Operand)] = a.Verdict
	}
}

// noteHeldConfig reports that a change of the device plugin's configuration stops at this node. What the condition
// showed before the neighbours of the node are known may have that already.
func (a *Assessment) noteHeldConfig(in Input) {
	held := heldConfig(in.HeldConfig)
	switch {
	case in.HeldConfig == "" || !in.HeldFails && a.State != readiness.Failed || strings.Contains(a.Message, held):
	case a.Ready():
		a.addCause(v1.ReasonPluginConfigInvalid, held)
	default:
		a.Message += "; " + held
	}
}

func heldConfig(source string) string {
	return "other nodes keep the earlier content of the configuration " + source + " of the device plugin until " +
		"this one works with the new one: correct what fails here"
}

// ShowsHeldConfig reports whether the condition of a node says that other nodes keep the earlier content of a
// configuration.
func ShowsHeldConfig(node *corev1.Node, source string) bool {
	shown := GPUReadyCondition(node)
	return shown != nil && strings.Contains(shown.Message, heldConfig(source))
}
