package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// finding is what the conditions of a policy report.
type finding struct {
	ready           metav1.ConditionStatus
	reason, message string
	degraded        bool
	progressing     bool
	// stalled: nothing changes until a person acts. Only what is wrong with the spec or with other objects sets it. What
	// fails on nodes or is tried again does not: readers such as Flux give up at once on a stalled object, and one broken
	// node of many must not make them do so.
	stalled bool
	// waitingFor and waitingReason are those of the condition Progressing where message is about a failure.
	waitingFor, waitingReason string
	// auxiliary is the finding about the auxiliary operands; nil if unknown.
	auxiliary *finding
}

// forProgressing returns the finding that the condition Progressing reports: that of the essential operands, or else of
// the auxiliary ones.
func (f finding) forProgressing() finding {
	switch {
	case f.progressing && f.degraded:
		return finding{progressing: true, reason: f.waitingReason, message: f.waitingFor}
	case !f.progressing && f.auxiliary != nil:
		return *f.auxiliary
	}
	return f
}

// forDegraded returns the finding that the condition Degraded reports, in the same order.
func (f finding) forDegraded() finding {
	if !f.degraded && f.auxiliary != nil {
		return *f.auxiliary
	}
	return f
}

// check returns a reason for a policy not to be Ready, nil if there is none.
type check func(Input, v1.ClusterPolicyStatus) *finding

// decidedChecks are those that depend on no node, and so also have a result before nodes are assessed.
var decidedChecks = []check{
	checkDecoding,      // what is installed is not of the present spec
	checkSpec,          // an invalid spec may cause all that follows
	checkNodePoolSpecs, // the same for some nodes
	checkConflicts,     // a user must decide who owns the object
}

// checks are all of them by precedence: the first that returns a finding is reported.
var checks = append(slices.Clip(decidedChecks),
	checkPassError,          // the API server did not answer
	checkApplyErrors,        // an object could not be written
	checkNodeWrites,         // a Node could not be written
	checkFailedUpgrades,     // GPUs that cannot be used, for a cause of their own
	checkNodes,              // GPUs that cannot be used
	checkOperands,           // failing DaemonSets of essential operands
	checkUndeclared,         // drivers that a user must declare
	checkDiscovery,          // the GPU nodes are unknown
	checkRunningUpgrades,    // becomes ready by itself
	checkProgress,           // becomes ready by itself
	checkNodePoolReferences, // a user must create what a node pool refers to
	checkUpgrades,           // drivers that are replaced later
)

// decidedFinding returns the first finding that depends on no node, nil if there is none or the pass has no plan.
func decidedFinding(in Input) *finding {
	if len(in.Plan.Steps) == 0 {
		return nil
	}
	return firstFinding(decidedChecks, in, decidedStatus(in))
}

// firstFinding returns the finding of the first check that has one, nil if none has. The policy is not ready then.
func firstFinding(checks []check, in Input, status v1.ClusterPolicyStatus) *finding {
	for _, check := range checks {
		if found := check(in, status); found != nil {
			found.ready = metav1.ConditionFalse
			return found
		}
	}
	return nil
}

// checkAll returns the finding about the policy, with that about the auxiliary operands.
func checkAll(in Input, status v1.ClusterPolicyStatus) finding {
	found := checkEssential(in, status)
	found.auxiliary = checkAuxiliary(in, status)
	return found
}

// checkEssential returns the finding about all that is needed to use GPUs.
func checkEssential(in Input, status v1.ClusterPolicyStatus) finding {
	if found := firstFinding(checks, in, status); found != nil {
		found.progressing = found.progressing || isProgressing(in, status)
		found.waitingFor, found.waitingReason = progressMessage(in, status), v1.ReasonOperandNotReady
		if found.waitingFor == "" {
			found.waitingFor, found.waitingReason = upgradeMessage(status, countUpgrades(in.nodes)), v1.ReasonUpgradePending
		}
		return *found
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

// noNodesFinding reports why there is no node to manage.
func noNodesFinding(status v1.ClusterPolicyStatus) finding {
	summary := status.NodeSummary
	found := finding{ready: metav1.ConditionTrue, reason: v1.ReasonNoGPUNodes, message: "no node has a GPU"}
	if summary.Excluded > 0 {
		found.reason = v1.ReasonExcluded
		by, remedy := fmt.Sprintf("label %s=%s", labels.DeployOperands, labels.False), "remove the label to use their GPUs"
		if excludedBySelector(status) {
			by += ", or by a nodeSelector of the spec"
			remedy = "see status.nodes, and remove the label or change the nodeSelector to use their GPUs"
		}
		found.message = fmt.Sprintf("all %d GPU nodes are excluded by %s: %s", summary.Excluded, by, remedy)
	}
	return found
}

func failure(reason, message string) *finding {
	return &finding{ready: metav1.ConditionFalse, reason: reason, message: message, degraded: true}
}

// stalledBy returns a failure that lasts until a person acts.
func stalledBy(reason, message string) *finding {
	found := failure(reason, message)
	found.stalled = true
	return found
}

func checkDecoding(in Input, _ v1.ClusterPolicyStatus) *finding {
	if in.Undecodable == "" {
		return nil
	}
	return stalledBy(v1.ReasonUndecodable, "the spec "+in.Undecodable)
}

func checkSpec(_ Input, status v1.ClusterPolicyStatus) *finding {
	if invalid := firstInState(status.Operands, v1.OperandInvalid); invalid != nil {
		return stalledBy(invalid.Reason, operandMessage(invalid))
	}
	return nil
}

func checkConflicts(_ Input, status v1.ClusterPolicyStatus) *finding {
	if conflict := firstInState(status.Operands, v1.OperandConflict); conflict != nil {
		return stalledBy(v1.ReasonConflict, operandMessage(conflict))
	}
	return nil
}

func checkPassError(in Input, _ v1.ClusterPolicyStatus) *finding {
	if in.Err != nil {
		return failure(v1.ReasonReconcileFailed, errorText(in.Err))
	}
	return nil
}

func checkApplyErrors(_ Input, status v1.ClusterPolicyStatus) *finding {
	if failed := firstInState(status.Operands, v1.OperandError); failed != nil {
		return failure(failed.Reason, operandMessage(failed))
	}
	return nil
}

// checkNodeWrites reports Nodes whose labels, taints or conditions the operator could not write.
func checkNodeWrites(in Input, _ v1.ClusterPolicyStatus) *finding {
	first, count := "", 0
	for _, entry := range in.View.Nodes {
		if entry.WriteError == "" {
			continue
		}
		if count++; first == "" {
			first = entry.WriteError
		}
	}
	if count == 0 {
		return nil
	}
	return failure(v1.ReasonReconcileFailed,
		fmt.Sprintf("%d of %d GPU nodes cannot be updated: %s", count, len(in.View.Nodes), first))
}

func checkNodes(in Input, status v1.ClusterPolicyStatus) *finding {
	summary := status.NodeSummary
	if vms := countVMNodes(in); vms > 0 && vms == int(summary.Degraded) {
		return failure(v1.ReasonNotSupportedYet, fmt.Sprintf(
			"%d of %d GPU nodes are for virtual machines, which are not supported yet: "+
				"label them %s=%s, or remove spec.sandboxWorkloads",
			vms, summary.Total, labels.GPUWorkload, v1.WorkloadContainer))
	}
	if summary.Degraded > 0 {
		return failure(v1.ReasonOperandFailed, fmt.Sprintf("%d of %d GPU nodes have failed: %s",
			summary.Degraded, summary.Total, firstNodes(status, int(summary.Degraded))))
	}
	return nil
}

// countVMNodes counts the nodes for virtual machines, each of which counts as degraded.
func countVMNodes(in Input) int {
	count := 0
	for _, entry := range in.View.Nodes {
		if !entry.Facts.ExcludedByLabel && in.Plan.Input.CheckWorkloadSupported(entry.Facts).Choice == operand.Refused {
			count++
		}
	}
	return count
}

func checkOperands(in Input, status v1.ClusterPolicyStatus) *finding {
	if failing := firstInState(filterOperands(in, status, isEssential), v1.OperandDegraded); failing != nil {
		return failure(v1.ReasonOperandFailed, operandMessage(failing))
	}
	return nil
}

func checkDiscovery(in Input, status v1.ClusterPolicyStatus) *finding {
	if status.NodeSummary.Total+status.NodeSummary.Excluded > 0 || in.View.AnyDiscovered || isProgressing(in, status) {
		return nil
	}
	const unknown = "no node has discovery labels, so the GPU nodes are unknown: "
	remedy := "check the pods of DaemonSet nvidia-node-discovery"
	if len(in.View.Undiscovered) == 0 {
		remedy = "the cluster has no node"
	} else if in.Plan.Input.Spec.NodeDiscovery.Mode == v1.DiscoveryNFD {
		remedy = "install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto"
	} else if off := firstWithReason(status.Operands, v1.ReasonAdmissionPolicyMissing); off != nil {
		remedy = off.Message
	}
	return &finding{reason: v1.ReasonNodeDiscoveryMissing, message: unknown + remedy}
}

func checkProgress(in Input, status v1.ClusterPolicyStatus) *finding {
	if !isProgressing(in, status) {
		return nil
	}
	return &finding{reason: v1.ReasonOperandNotReady, message: progressMessage(in, status)}
}

func isProgressing(in Input, status v1.ClusterPolicyStatus) bool {
	return status.NodeSummary.Progressing > 0 || progressingOperand(in, status) != nil
}

// progressingOperand returns the first essential operand that is not ready yet; nil if there is none.
func progressingOperand(in Input, status v1.ClusterPolicyStatus) *v1.OperandStatus {
	return firstInState(filterOperands(in, status, isEssential), v1.OperandWaiting, v1.OperandProgressing)
}

// progressMessage returns which nodes, or else which operand, the policy waits for; empty if it waits for none.
func progressMessage(in Input, status v1.ClusterPolicyStatus) string {
	if summary := status.NodeSummary; summary.Progressing > 0 {
		return fmt.Sprintf("%d of %d GPU nodes are ready; waiting for %s",
			summary.Ready, summary.Total, firstNodes(status, int(summary.Progressing)))
	}
	if operand := progressingOperand(in, status); operand != nil {
		return operandMessage(operand)
	}
	return ""
}

// firstInState returns the first operand in the first of these states that has one; nil if no operand is in any.
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

// firstNodes names the first few of the count nodes that head status.nodes, each with its stage and reason.
func firstNodes(status v1.ClusterPolicyStatus, count int) string {
	const maxNamed = 3
	var parts []string
	for _, node := range status.Nodes[:min(count, maxNamed, len(status.Nodes))] {
		parts = append(parts, fmt.Sprintf("%s (%s: %s)", node.Name, node.Stage, node.Reason))
	}
	if more := count - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// excludedBySelector reports whether a nodeSelector excludes a listed node.
func excludedBySelector(status v1.ClusterPolicyStatus) bool {
	return slices.ContainsFunc(status.Nodes, func(n v1.NodeStatus) bool {
		return n.Reason == v1.ReasonNotSelected && !n.Ready
	})
}
