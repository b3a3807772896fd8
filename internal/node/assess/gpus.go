package assess

import (
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// countGPUs counts the GPUs of the node, whose stages are assessed.
func (a *Assessment) countGPUs(in Input) readiness.GPUs {
	// The count of another mode would be stale.
	countsBus := in.NodePlan.Spec.NodeDiscovery.Mode != v1.DiscoveryNFD
	counted := readiness.CountGPUs(in.Node, countsBus, in.NodePlan.GPUReplicas)
	if in.offeredByClaims() != nil {
		counted = readiness.ClaimableGPUs(in.Node, countsBus)
	}
	counted = counted.WithFaults(a.Health.faults()).WithLost(a.lost.count, a.lost.words)
	if !a.Ready() && a.Stage.Before(v1.StageAllocatable) {
		// What a device plugin that ends again and again advertises in between is of no use.
		counted.Usable = 0
	}
	return counted
}

// findLostGPUs finds that a node has lost GPUs. With fewer usable ones than spec.health.minUsable requires it is not
// ready, but they stay usable: no driver upgrade and no start-up taint waits for hardware.
func findLostGPUs(in Input, so Assessment) finding {
	if !in.NodePlan.NeedsAllocatable {
		return finding{}
	}
	verdict := so.GPUs.Verdict(*in.NodePlan.Spec.Health.MinUsable)
	if verdict.State != readiness.Ready {
		// Too few GPUs are worse than what a ready node has to say, such as an outdated driver.
		verdict.Outdated = so.Outdated
		verdict.Message = strings.TrimSuffix(verdict.Message+"; "+so.Message, "; ")
	}
	return verdictAt(v1.StageAllocatable, "", verdict)
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
	a.lost.count, a.lost.words = int(exit.ExitCode)-labels.ExitGPUsLost, readiness.LastLine(exit.Message)
	return readiness.Verdict{Until: verdict.Until, BeingReplaced: verdict.BeingReplaced}
}

// findPluginConfig finds that the configuration which the node selects by its label is not used.
func findPluginConfig(in Input, _ Assessment) finding {
	return cause(v1.ReasonPluginConfigInvalid, in.NodePlan.PluginConfig.Message)
}

// findFatalConfig finds that the device plugin does not start because of that.
func findFatalConfig(in Input, so Assessment) finding {
	if !in.NodePlan.PluginConfig.Fatal {
		return finding{}
	}
	so.State, so.Reason, so.Detail = readiness.Failed, v1.ReasonPluginConfigInvalid, ""
	so.Message = in.NodePlan.PluginConfig.Message
	return finding{NodeVerdict: so.NodeVerdict}
}

// findHeldConfig finds that a change of the device plugin's configuration stops at this node.
func findHeldConfig(in Input, so Assessment) finding {
	if in.HeldConfig == "" || !in.HeldFails && so.State != readiness.Failed {
		return finding{}
	}
	found := cause(v1.ReasonPluginConfigInvalid, "other nodes keep the earlier content of the configuration "+
		in.HeldConfig+" of the device plugin until this one works with the new one: correct what fails here")
	found.heldConfig = in.HeldConfig
	return found
}
