package assess

import (
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// finding is what a check has found out about a node, in the terms of a verdict, and what it leaves for the record of
// the node. Without a verdict it is none.
type finding struct {
	readiness.NodeVerdict
	notes
}

// cause is a finding that leaves a node ready; none without a message.
func cause(reason, message string) (found finding) {
	if message != "" {
		found.Reason, found.Message = reason, message
	}
	return found
}

// verdictAt is a finding with a verdict at a stage; none if the verdict is empty.
func verdictAt(stage v1.Stage, operand string, verdict readiness.Verdict) finding {
	return finding{NodeVerdict: readiness.NodeVerdict{Stage: stage, Operand: operand, Verdict: verdict}}
}

// about is a finding about these neighbours.
func about(found finding, neighbours ...neighbour.Neighbour) finding {
	found.neighbours = neighbours
	return found
}

// Check is a check of a node: a pure function, and how its finding combines with the verdict so far.
type Check struct {
	Name string
	// Reasons that it gives a node; empty if it leaves the reason as it is.
	Reasons []string
	On      Target
	Effect  Effect
	find    func(in Input, so Assessment) finding
}

// Target is the set of nodes that a check is made for, by the verdict so far. Text follows "a node that".
type Target struct {
	Text string
	has  func(so *Assessment) bool
}

// Effect is what a finding does to the verdict so far.
type Effect struct {
	Text  string
	apply func(*Assessment, finding)
}

// What checks are made for. A paused node waits for an operand that its label pauses.
var (
	anyNode     = Target{"is ready or not", func(*Assessment) bool { return true }}
	ready       = Target{"is ready", (*Assessment).Ready}
	bare        = Target{"is ready without a reason", func(a *Assessment) bool { return a.Ready() && a.Reason == "" }}
	pausable    = Target{"is ready or paused", func(a *Assessment) bool { return a.Ready() || a.isPaused() }}
	due         = Target{"is neither ready nor paused", func(a *Assessment) bool { return !a.Ready() && !a.isPaused() }}
	past        = Target{"is not ready past stage Discovered", (*Assessment).isPastDiscovered}
	progressing = Target{"progresses past stage Discovered", (*Assessment).isProgressing}

	stuck = Target{"has failed, or waits for its kubelet", func(a *Assessment) bool {
		return !a.Ready() && !a.isProgressing()
	}}
	upgradable = Target{"is outdated, or progresses or is overdue past stage Discovered", func(a *Assessment) bool {
		return a.Ready() && a.Outdated || a.isProgressing() || a.isPastDiscovered() && a.Overdue
	}}
	pluginStarts = Target{"is not ready at stage DevicePlugin, and not paused", func(a *Assessment) bool {
		return a.isAt(v1.StageDevicePlugin) && !a.isPaused() && a.Reason != v1.ReasonMIGConfigPending
	}}
	unoffered = Target{"is not ready at stage DevicePlugin or Allocatable", func(a *Assessment) bool {
		return a.isAt(v1.StageDevicePlugin) || a.isAt(v1.StageAllocatable)
	}}
)

// How findings combine.
var (
	decides  = Effect{"decides; no other check follows", (*Assessment).replace}
	replaces = Effect{"replaces the verdict on the node and its operand", (*Assessment).replace}
	worsens  = Effect{"replaces the verdict, or adds to that of a ready node if it stays ready", (*Assessment).worsen}
	explains = Effect{"replaces state, reason and message", (*Assessment).explain}
	leads    = Effect{"is the reason, and comes first in the message", (*Assessment).lead}
	returns  = Effect{"is the reason, comes first in the message, and sets stage Discovered", (*Assessment).toDiscovered}
	adds     = Effect{"follows in the message, and is the reason of a ready node without one", (*Assessment).add}
	follows  = Effect{"follows in the message", (*Assessment).add}
	precedes = Effect{"precedes the message", func(a *Assessment, f finding) { a.Message = f.Message + ": " + a.Message }}
	remarks  = Effect{"follows in parentheses", func(a *Assessment, f finding) { a.Message += " (" + f.Message + ")" }}
	rechecks = Effect{"has it reassessed", func(a *Assessment, f finding) { a.Until = times.Earlier(a.Until, f.Until) }}
)

// decisions are the checks whether a node has operands.
var decisions = []Check{
	{"label that excludes the node", []string{v1.ReasonExcluded}, anyNode, decides, findExcluded},
	{"workload of the node", []string{v1.ReasonNotSupportedYet}, anyNode, decides, findRefused},
	{"nodeSelectors of the spec", []string{v1.ReasonNotSelected}, anyNode, decides, findUnselected},
}

// checks are those of a node that has operands, in their order. They begin with the verdict of the stages.
var checks = []Check{
	{"driver that is left to the host", nil, past, precedes, findHostDriver},
	{"start-up taints", []string{v1.ReasonStartupTaint}, ready, replaces, findTaints},
	{"lost GPUs", []string{v1.ReasonGPUsMissing, v1.ReasonGPUsUnhealthy}, ready, worsens, findLostGPUs},
	{"GPUs that others offer", nil, bare, follows, findForeignOffer},
	{"MIG layout", []string{
		v1.ReasonMIGConfigDraining, v1.ReasonMIGConfigPending, v1.ReasonMIGConfigFailed, v1.ReasonMIGConfigMismatch,
		v1.ReasonMIGConfigHeld,
	}, pausable, worsens, findMIG},
	{"configuration of the device plugin", []string{v1.ReasonPluginConfigInvalid}, ready, adds, findPluginConfig},
	{"configuration that stops it", []string{v1.ReasonPluginConfigInvalid}, pluginStarts, replaces, findFatalConfig},
	{"another device plugin, for less than 2 minutes", nil, anyNode, rechecks, findNewPlugin},
	{"another device plugin", []string{v1.ReasonForeignDevicePlugin}, progressing, replaces, findForeignPlugin},
	{"running driver upgrade", []string{v1.ReasonUpgrading}, past, explains, findRunningUpgrade},
	{"deadline of the stage", nil, due, replaces, findOverdue},
	{"driver of another pool", []string{v1.ReasonUpgradePending}, ready, explains, findMove},
	{"selection of operands", []string{
		v1.ReasonUpgradePending, v1.ReasonNoNVIDIADriver, v1.ReasonConflictingNodeSelector, v1.ReasonNotSelected,
	}, bare, explains, findSelection},
	{"failed driver upgrade", []string{v1.ReasonUpgradeFailed}, upgradable, explains, findFailedUpgrade},
	{"missing discovery labels", nil, stuck, remarks, findMissingLabels},
	{"missing discovery labels", []string{v1.ReasonDiscoveryLabelsMissing}, ready, leads, findMissingLabels},
	{"missing discovery labels", []string{v1.ReasonDiscoveryLabelsMissing}, progressing, returns, findMissingLabels},
	{"refused pods", []string{v1.ReasonGPUPodsRefused}, ready, adds, findRefusedPods},
	{"neighbours", duplicateReasons, bare, explains, findDuplicates},
	{"another device plugin", nil, unoffered, follows, findOtherPlugin},
	{"configuration that other nodes do not read", []string{v1.ReasonPluginConfigInvalid}, anyNode, adds, findHeldConfig},
	{"labels without effect", nil, ready, follows, findLabelNotes},
}

// Checks returns the checks of a node in their order. The page docs/architecture/node.md has a table of them.
func Checks() []Check { return slices.Concat(decisions, checks) }

// apply makes a check, and reports whether it has found something.
func (a *Assessment) apply(check Check, in Input) bool {
	if check.On.has(a) {
		if found := check.find(in, *a); found.Verdict != (readiness.Verdict{}) {
			check.Effect.apply(a, found)
			a.noted.add(found.notes)
			return true
		}
	}
	return false
}

func (a *Assessment) isPaused() bool           { return a.Reason == v1.ReasonOperandPaused }
func (a *Assessment) isAt(stage v1.Stage) bool { return !a.Ready() && a.Stage == stage }

// A node that is not ready at stage Discovered has a kubelet that is not.
func (a *Assessment) isPastDiscovered() bool { return !a.Ready() && a.Stage != v1.StageDiscovered }
func (a *Assessment) isProgressing() bool    { return a.isPastDiscovered() && a.State != readiness.Failed }

// replace makes the finding the verdict on the node, and on its operand unless that is ready.
func (a *Assessment) replace(found finding) {
	a.NodeVerdict = found.NodeVerdict
	if !a.Ready() && a.Operand != "" {
		a.Operands[operand.Name(a.Operand)] = a.Verdict
	}
}

// worsen drops a finding that leaves a ready node ready if this one is not: it may be paused.
func (a *Assessment) worsen(found finding) {
	switch {
	case found.State != readiness.Ready:
		a.replace(found)
	case a.Ready():
		a.add(found)
	}
}

// explain gives the node, not its operand, another state and cause.
func (a *Assessment) explain(found finding) {
	a.State, a.Reason, a.Message, a.Detail = found.State, found.Reason, found.Message, found.Detail
	a.Outdated = a.Outdated || found.Outdated
}

// lead gives the node the reason. The finding comes first in the message, but after the command that replaces what is
// outdated: long messages are truncated in the policy's status.
func (a *Assessment) lead(found finding) {
	first, second := found.Message, a.Message
	if a.Ready() && a.Outdated {
		first, second = second, first
	}
	a.Reason, a.Message = found.Reason, strings.TrimSuffix(first+"; "+second, "; ")
}

// toDiscovered moves the node back: its operands stay, but whether it needs them is unknown.
func (a *Assessment) toDiscovered(found finding) {
	if a.Operand != "" {
		a.Message = a.Operand + ": " + a.Message
	}
	a.Stage, a.Operand = v1.StageDiscovered, ""
	a.lead(found)
}

// add keeps the reason of an earlier check. A message without a reason gives way to one with a reason.
func (a *Assessment) add(found finding) {
	if a.Ready() && a.Reason == "" && found.Reason != "" {
		a.Reason, a.Message = found.Reason, found.Message
		return
	}
	a.Message = strings.TrimPrefix(a.Message+"; "+found.Message, "; ")
}
