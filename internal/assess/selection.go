package assess

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// notSelected returns the verdict on a node that no nodeSelector of the spec matches.
func notSelected(node plan.NodePlan) readiness.NodeVerdict {
	return atDiscovered(readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonNotSelected, Message: node.Unselected,
	})
}

// checkSelection reports, on a ready node, the operands that a nodeSelector keeps off it, or would keep off but for
// pods that use them, and a driver that no NVIDIADriver object, or several, declare.
func (a *Assessment) checkSelection(node plan.NodePlan) {
	if a.State != readiness.Ready || a.Reason != "" {
		return
	}
	if node.RetainedDriver != "" {
		a.Outdated, a.Reason, a.Message = true, v1.ReasonUpgradePending, node.RetainedDriver
		return
	}
	for _, onNode := range node.Essential {
		if onNode.Undeclared() {
			a.Reason, a.Message = onNode.Reason, "keeps its driver: "+onNode.Message
			return
		}
	}
	var absent []string
	cause := ""
	for _, onNode := range slices.Concat(node.Essential, node.Auxiliary) {
		if onNode.Reason == v1.ReasonNotSelected {
			absent, cause = append(absent, string(onNode.Operand)), onNode.Message
		}
	}
	if len(absent) > 0 {
		a.Reason = v1.ReasonNotSelected
		a.Message = fmt.Sprintf("does not run %s: %s", strings.Join(absent, ", "), cause)
	}
}

// noteUnknownWorkload notes on a ready node that its label names no workload. The default is as good a choice as before
// the label was written, so that it is no reason of its own.
func (a *Assessment) noteUnknownWorkload(node plan.NodePlan) {
	if a.Ready() && a.Reason == "" && a.Message == "" {
		a.Message = node.UnknownWorkload
	}
}
