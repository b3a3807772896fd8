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
type check func(Pass, v1.ClusterPolicyStatus) (finding, bool)

// checks by precedence: the first that applies is told.
var checks = []check{
	wrongSpec,         // nothing else can be right
	wrongNodePool,     // the same for some nodes
	foreignObject,     // somebody must decide whose it is
	failedPass,        // the API did not answer
	failedOperand,     // an object could not be written
	failedWrite,       // a Node could not be written
	failedNode,        // GPUs that cannot be used
	degradedOperand,   // the same, as its DaemonSets have it
	missingDiscovery,  // nobody knows
	somethingOnItsWay, // time helps
	waitingNodePool,   // somebody makes what it names
	outdatedDriver,    // a person decides when
}

// judge draws the conclusion about the policy. What is not needed to use GPUs is judged apart.
func judge(pass Pass, status v1.ClusterPolicyStatus) finding {
	found := judgeNodes(pass, status)
	found.auxiliary = judgeAuxiliary(pass, status)
	return found
}

// judgeNodes draws the conclusion about what is needed to use GPUs.
func judgeNodes(pass Pass, status v1.ClusterPolicyStatus) finding {
	for _, applies := range checks {
		if found, does := applies(pass, status); does {
			found.ready = metav1.ConditionFalse
			found.progressing = found.progressing || isProgressing(pass, status)
			found.waits = waiting(pass, status)
			return found
		}
	}
	summary := status.NodeSummary
	if summary.Total == 0 {
		return nothingToDo(status)
	}
	return finding{
		ready: metav1.ConditionTrue, reason: v1.ReasonReconciled,
		message: fmt.Sprintf("%d of %d GPU nodes are ready", summary.Ready, summary.Total),
	}
}

// nothingToDo tells why no node is to be made ready.
func nothingToDo(status v1.ClusterPolicyStatus) finding {
	summary := status.NodeSummary
	found := finding{ready: metav1.ConditionTrue, reason: v1.ReasonNoGPUNodes, message: "no node has a GPU"}
	if summary.Excluded > 0 {
		found.reason = v1.ReasonExcluded
		by := "label " + labels.DeployOperands
		if bySelector(status) {
			by += ", or by a nodeSelector of the spec: see status.nodes"
		}
		found.message = fmt.Sprintf("all %d GPU nodes are kept free of operands by %s", summary.Excluded, by)
	}
	return found
}

func bad(reason, message string) (finding, bool) {
	return finding{reason: reason, message: message, degraded: true}, true
}

func wrongSpec(_ Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if wrong := inState(status.Operands, v1.OperandInvalid); wrong != nil {
		return bad(wrong.Reason, about(wrong))
	}
	return finding{}, false
}

func foreignObject(_ Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if taken := inState(status.Operands, v1.OperandConflict); taken != nil {
		return bad(v1.ReasonConflict, about(taken))
	}
	return finding{}, false
}

func failedPass(pass Pass, _ v1.ClusterPolicyStatus) (finding, bool) {
	if pass.Err != nil {
		return bad(v1.ReasonReconcileFailed, pass.Err.Error())
	}
	return finding{}, false
}

func failedOperand(_ Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if failing := inState(status.Operands, v1.OperandError); failing != nil {
		return bad(failing.Reason, about(failing))
	}
	return finding{}, false
}

func failedNode(pass Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	summary := status.NodeSummary
	if machines := forMachines(pass); machines > 0 && machines == int(summary.Degraded) {
		return bad(v1.ReasonNotSupportedYet, fmt.Sprintf("%d of %d GPU nodes are for virtual machines, which are not supported yet: "+
			"label them %s=%s, or remove spec.sandboxWorkloads", machines, summary.Total, labels.GPUWorkload, v1.WorkloadContainer))
	}
	if summary.Degraded > 0 {
		return bad(v1.ReasonOperandFailed, fmt.Sprintf("%d of %d GPU nodes have failed: %s", summary.Degraded, summary.Total, worst(status, int(summary.Degraded))))
	}
	return finding{}, false
}

// forMachines counts the nodes for virtual machines, each of which counts as degraded.
func forMachines(pass Pass) int {
	count := 0
	for _, entry := range pass.Fleet.Nodes {
		if !entry.Facts.Excluded && pass.Plan.Input.ServesVMs(entry.Facts).Choice == operand.Invalid {
			count++
		}
	}
	return count
}

// failedWrite reports Nodes that the operator cannot write: their labels or conditions are not as they are to be.
func failedWrite(pass Pass, _ v1.ClusterPolicyStatus) (finding, bool) {
	first, count := "", 0
	for _, entry := range pass.Fleet.Nodes {
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
	return bad(v1.ReasonReconcileFailed, fmt.Sprintf("%d of %d GPU nodes cannot be written: %s", count, len(pass.Fleet.Nodes), first))
}

func degradedOperand(pass Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if failing := inState(operandsOf(pass, status, isEssential), v1.OperandDegraded); failing != nil {
		return bad(v1.ReasonOperandFailed, about(failing))
	}
	return finding{}, false
}

func missingDiscovery(pass Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if status.NodeSummary.Total+status.NodeSummary.Excluded > 0 || pass.Fleet.AnyDiscovered || isProgressing(pass, status) {
		return finding{}, false
	}
	const unknown = "no node has discovery labels, so that nobody knows which have GPUs: "
	remedy := "see the pods of DaemonSet nvidia-node-discovery"
	if len(pass.Fleet.Undiscovered) == 0 {
		remedy = "the cluster has no node"
	} else if pass.Plan.Input.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD {
		remedy = "install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto"
	} else if off := withReason(status.Operands, v1.ReasonFenceMissing); off != nil {
		remedy = off.Message
	}
	return finding{reason: v1.ReasonNodeDiscoveryMissing, message: unknown + remedy}, true
}

func somethingOnItsWay(pass Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	return finding{reason: v1.ReasonOperandNotReady, message: waiting(pass, status)}, isProgressing(pass, status)
}

func outdatedDriver(pass Pass, status v1.ClusterPolicyStatus) (finding, bool) {
	if pending := withReason(operandsOf(pass, status, isEssential), v1.ReasonUpgradePending); pending != nil {
		return finding{reason: v1.ReasonUpgradePending, message: about(pending), progressing: true}, true
	}
	// A node whose operating system has changed runs a driver that is right for its old pool.
	message := fmt.Sprintf("%d of %d GPU nodes have an outdated driver: see status.nodes", status.NodeSummary.Upgrading, status.NodeSummary.Total)
	return finding{reason: v1.ReasonUpgradePending, message: message, progressing: true}, status.NodeSummary.Upgrading > 0
}

func isProgressing(pass Pass, status v1.ClusterPolicyStatus) bool {
	return status.NodeSummary.Progressing > 0 || onItsWay(pass, status) != nil
}

// onItsWay is an operand that is needed to use GPUs and not ready yet.
func onItsWay(pass Pass, status v1.ClusterPolicyStatus) *v1.OperandStatus {
	return inState(operandsOf(pass, status, isEssential), v1.OperandWaiting, v1.OperandProgressing)
}

// waiting tells what a policy waits for that is on its way.
func waiting(pass Pass, status v1.ClusterPolicyStatus) string {
	if status.NodeSummary.Progressing > 0 {
		return fmt.Sprintf("%d of %d GPU nodes are ready; waiting for %s",
			status.NodeSummary.Ready, status.NodeSummary.Total, worst(status, int(status.NodeSummary.Progressing)))
	}
	if operand := onItsWay(pass, status); operand != nil {
		return about(operand)
	}
	return ""
}

func inState(operands []v1.OperandStatus, states ...v1.OperandState) *v1.OperandStatus {
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

func withReason(operands []v1.OperandStatus, reason string) *v1.OperandStatus {
	for i := range operands {
		if operands[i].Reason == reason {
			return &operands[i]
		}
	}
	return nil
}

func about(operand *v1.OperandStatus) string {
	return fmt.Sprintf("%s: %s", operand.Name, operand.Message)
}

// worst names the first of this many nodes, which head the list, each with its stage and reason.
func worst(status v1.ClusterPolicyStatus, count int) string {
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

// bySelector reports whether a nodeSelector keeps a listed node free of operands.
func bySelector(status v1.ClusterPolicyStatus) bool {
	return slices.ContainsFunc(status.Nodes, func(n v1.NodeStatus) bool { return n.Reason == v1.ReasonNotSelected && !n.Ready })
}
