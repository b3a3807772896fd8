package assess

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// notSelected is the verdict on a node that a nodeSelector of the spec keeps free of operands.
func notSelected(node plan.Node) readiness.NodeVerdict {
	return atDiscovered(readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonNotSelected, Message: node.Unselected})
}

// checkSelection tells of a node that is ready what a nodeSelector keeps off it, or would but for the work
// that it has.
func (a *Assessment) checkSelection(node plan.Node) {
	if a.State != readiness.Ready || a.Reason != "" {
		return
	}
	if node.Kept != "" {
		a.Outdated, a.Reason, a.Message = true, v1.ReasonUpgradePending, node.Kept
		return
	}
	var off []string
	why := ""
	for _, stage := range slices.Concat(node.Rungs, node.Beside) {
		if stage.Reason == v1.ReasonNotSelected {
			off, why = append(off, string(stage.Operand)), stage.Message
		}
	}
	if len(off) > 0 {
		a.Reason = v1.ReasonNotSelected
		a.Message = fmt.Sprintf("without %s: %s", strings.Join(off, ", "), why)
	}
}
