package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// unselected is the verdict on a node that a nodeSelector of the spec keeps free of operands.
func unselected(node plan.Node) readiness.NodeVerdict {
	return readiness.NodeVerdict{Stage: v1.StageDiscovered, Verdict: readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonNotSelected, Message: node.Unselected,
	}}
}

// judgeSelection tells of a node that is ready what a nodeSelector keeps off it, or would but for the work
// that it has.
func (assessment *NodeAssessment) judgeSelection(node plan.Node) {
	if assessment.State != readiness.Ready || assessment.Reason != "" {
		return
	}
	if node.Kept != "" {
		assessment.Outdated, assessment.Reason, assessment.Message = true, v1.ReasonUpgradePending, node.Kept
		return
	}
	var off []string
	why := ""
	for _, rung := range slices.Concat(node.Rungs, node.Beside) {
		if rung.Reason == v1.ReasonNotSelected {
			off, why = append(off, string(rung.Operand)), rung.Message
		}
	}
	if len(off) > 0 {
		assessment.Reason = v1.ReasonNotSelected
		assessment.Message = fmt.Sprintf("without %s: %s", strings.Join(off, ", "), why)
	}
}

// bySelector tells whether a nodeSelector keeps a listed node free of operands.
func bySelector(status v1.ClusterPolicyStatus) bool {
	return slices.ContainsFunc(status.Nodes, func(n v1.NodeStatus) bool { return n.Reason == v1.ReasonNotSelected && !n.Ready })
}
