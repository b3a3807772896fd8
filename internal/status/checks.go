package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// check looks for one kind of trouble, and tells whether it found it.
type check func(Input, v1.ClusterPolicyStatus) (finding, bool)

// checks by precedence: the first that applies is told.
var checks = []check{
	checkSpec,               // nothing else can be right
	checkNodePoolSpecs,      // the same for some nodes
	checkConflicts,          // somebody must decide whose it is
	checkPassError,          // the API did not answer
	checkApplyErrors,        // an object could not be written
	checkNodeWrites,         // a Node could not be written
	checkNodes,              // GPUs that cannot be used
	checkOperands,           // the same, as its DaemonSets have it
	checkDiscovery,          // nobody knows
	checkProgress,           // time helps
	checkNodePoolReferences, // somebody makes what it names
	checkUpgrades,           // a person decides when
}

// checkAll draws the conclusion about the policy. What is not needed to use GPUs is judged apart.
func checkAll(in Input, status v1.ClusterPolicyStatus) finding {
	found := checkEssential(in, status)
	found.auxiliary = checkAuxiliary(in, status)
	return found
}

// checkEssential draws the conclusion about what is needed to use GPUs.
func checkEssential(in Input, status v1.ClusterPolicyStatus) finding {
	for _, applies := range checks {
		if found, does := applies(in, status); does {
			found.ready = metav1.ConditionFalse
			found.progressing = found.progressing || isProgressing(in, status)
			found.waitingFor = progressMessage(in, status)
			return found
		}
	}
	summary := status.NodeSummary
	if summary.Total == 0 {
		return noNodesFinding(status)
	}
	return finding{
		ready: metav1.ConditionTrue, reason: v1.ReasonReconciled,
		message: fmt.Sprintf("%d of %d GPU nodes are ready", summary.Ready, summary.Total),
	}
}

// noNodesFinding tells why no node is to be made ready.
func noNodesFinding(status v1.ClusterPolicyStatus) finding {
	summary := status.NodeSummary
	found := finding{ready: metav1.ConditionTrue, reason: v1.ReasonNoGPUNodes, message: "no node has a GPU"}
	if summary.Excluded > 0 {
		found.reason = v1.ReasonExcluded
		by := "label " + labels.DeployOperands
		if excludedBySelector(status) {
			by += ", or by a nodeSelector of the spec: see status.nodes"
		}
		found.message = fmt.Sprintf("all %d GPU nodes are kept free of operands by %s", summary.Excluded, by)
	}
	return found
}

func bad(reason, message string) (finding, bool) {
	return finding{reason: reason, message: message, degraded: true}, true
}

func checkSpec(_ Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if wrong := firstInState(status.Operands, v1.OperandInvalid); wrong != nil {
		return bad(wrong.Reason, operandMessage(wrong))
	}
	return finding{}, false
}

func checkConflicts(_ Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if taken := firstInState(status.Operands, v1.OperandConflict); taken != nil {
		return bad(v1.ReasonConflict, operandMessage(taken))
	}
	return finding{}, false
}

func checkPassError(in Input, _ v1.ClusterPolicyStatus) (finding, bool) {
	if in.Err != nil {
		return bad(v1.ReasonReconcileFailed, in.Err.Error())
	}
	return finding{}, false
}

func checkApplyErrors(_ Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if failing := firstInState(status.Operands, v1.OperandError); failing != nil {
		return bad(failing.Reason, operandMessage(failing))
	}
	return finding{}, false
}

func checkNodes(in Input, status v1.ClusterPolicyStatus) (finding, bool) {
	summary := status.NodeSummary
	if machines := countVMNodes(in); machines > 0 && machines == int(summary.Degraded) {
		return bad(v1.ReasonNotSupportedYet, fmt.Sprintf("%d of %d GPU nodes are for virtual machines, which are not supported yet: "+
			"label them %s=%s, or remove spec.sandboxWorkloads", machines, summary.Total, labels.GPUWorkload, v1.WorkloadContainer))
	}
	if summary.Degraded > 0 {
		return bad(v1.ReasonOperandFailed, fmt.Sprintf("%d of %d GPU nodes have failed: %s", summary.Degraded, summary.Total, firstNodes(status, int(summary.Degraded))))
	}
	return finding{}, false
}

// countVMNodes counts the nodes for virtual machines, each of which counts as degraded.
func countVMNodes(in Input) int {
	count := 0
	for _, entry := range in.Fleet.Nodes {
		if !entry.Facts.Excluded && in.Plan.Input.ServesVMs(entry.Facts).Verdict == operand.Invalid {
			count++
		}
	}
	return count
}

// checkNodeWrites reports Nodes that the operator cannot write: their labels or conditions are not as they are to be.
func checkNodeWrites(in Input, _ v1.ClusterPolicyStatus) (finding, bool) {
	first, count := "", 0
	for _, entry := range in.Fleet.Nodes {
		if entry.WriteError == "" {
			continue
		}
		if count++; first == "" {
			first = entry.WriteError
		}
	}
	if count == 0 {
		return finding{}, false
	}
	return bad(v1.ReasonReconcileFailed, fmt.Sprintf("%d of %d GPU nodes cannot be written: %s", count, len(in.Fleet.Nodes), first))
}

func checkOperands(in Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if failing := firstInState(filterOperands(in, status, isEssential), v1.OperandDegraded); failing != nil {
		return bad(v1.ReasonOperandFailed, operandMessage(failing))
	}
	return finding{}, false
}

func checkDiscovery(in Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if status.NodeSummary.Total+status.NodeSummary.Excluded > 0 || in.Fleet.AnyDiscovered || isProgressing(in, status) {
		return finding{}, false
	}
	const unknown = "no node has discovery labels, so that nobody knows which have GPUs: "
	remedy := "see the pods of DaemonSet nvidia-node-discovery"
	if len(in.Fleet.Undiscovered) == 0 {
		remedy = "the cluster has no node"
	} else if in.Plan.Input.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD {
		remedy = "install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto"
	} else if off := firstWithReason(status.Operands, v1.ReasonFenceMissing); off != nil {
		remedy = off.Message
	}
	return finding{reason: v1.ReasonNodeDiscoveryMissing, message: unknown + remedy}, true
}

func checkProgress(in Input, status v1.ClusterPolicyStatus) (finding, bool) {
	return finding{reason: v1.ReasonOperandNotReady, message: progressMessage(in, status)}, isProgressing(in, status)
}

func checkUpgrades(in Input, status v1.ClusterPolicyStatus) (finding, bool) {
	if pending := firstWithReason(filterOperands(in, status, isEssential), v1.ReasonUpgradePending); pending != nil {
		return finding{reason: v1.ReasonUpgradePending, message: operandMessage(pending), progressing: true}, true
	}
	// A node whose operating system has changed runs a driver that is right for its old pool.
	message := fmt.Sprintf("%d of %d GPU nodes have an outdated driver: see status.nodes", status.NodeSummary.Upgrading, status.NodeSummary.Total)
	return finding{reason: v1.ReasonUpgradePending, message: message, progressing: true}, status.NodeSummary.Upgrading > 0
}

func isProgressing(in Input, status v1.ClusterPolicyStatus) bool {
	return status.NodeSummary.Progressing > 0 || progressingOperand(in, status) != nil
}

// progressingOperand is an operand that is needed to use GPUs and not ready yet.
func progressingOperand(in Input, status v1.ClusterPolicyStatus) *v1.OperandStatus {
	return firstInState(filterOperands(in, status, isEssential), v1.OperandWaiting, v1.OperandProgressing)
}

// progressMessage tells what a policy waits for that is on its way.
func progressMessage(in Input, status v1.ClusterPolicyStatus) string {
	if status.NodeSummary.Progressing > 0 {
		return fmt.Sprintf("%d of %d GPU nodes are ready; waiting for %s",
			status.NodeSummary.Ready, status.NodeSummary.Total, firstNodes(status, int(status.NodeSummary.Progressing)))
	}
	if operand := progressingOperand(in, status); operand != nil {
		return operandMessage(operand)
	}
	return ""
}

func firstInState(operands []v1.OperandStatus, states ...v1.OperandState) *v1.OperandStatus {
	for _, state := range states {
		for i := range operands {
			operand := &operands[i]
			if operand.State == state && operand.Reason != v1.ReasonUpgradePending {
				return operand
			}
		}
	}
	return nil
}

func firstWithReason(operands []v1.OperandStatus, reason string) *v1.OperandStatus {
	for i := range operands {
		if operands[i].Reason == reason {
			return &operands[i]
		}
	}
	return nil
}

func operandMessage(operand *v1.OperandStatus) string {
	return fmt.Sprintf("%s: %s", operand.Name, operand.Message)
}

// firstNodes names the first of this many nodes, which head the list, each with its stage and reason.
func firstNodes(status v1.ClusterPolicyStatus, count int) string {
	const most = 3
	var parts []string
	for _, node := range status.Nodes[:min(count, most, len(status.Nodes))] {
		parts = append(parts, fmt.Sprintf("%s (%s: %s)", node.Name, node.Stage, node.Reason))
	}
	if more := count - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// excludedBySelector reports whether a nodeSelector keeps a listed node free of operands.
func excludedBySelector(status v1.ClusterPolicyStatus) bool {
	return slices.ContainsFunc(status.Nodes, func(n v1.NodeStatus) bool { return n.Reason == v1.ReasonNotSelected && !n.Ready })
}
