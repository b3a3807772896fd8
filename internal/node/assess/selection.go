package assess

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
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

// noteLabels notes on a ready node its labels and annotations that have no effect, after all else: they are no reason
// of their own. The message may have them already, as the condition of the node had before the operator started.
func (a *Assessment) noteLabels(in Input) {
	notes := in.NodePlan.LabelNotes
	requested := in.Node.Annotations[labels.UpgradeRequested]
	if requested != "" && requested != labels.True && requested != labels.False {
		notes = append(slices.Clip(notes), fmt.Sprintf("annotation %s is %q, which requests no upgrade: only %q does",
			labels.UpgradeRequested, requested, labels.True))
	}
	joined := strings.Join(notes, "; ")
	if a.Ready() && !strings.Contains(a.Message, joined) {
		a.Message = strings.TrimPrefix(a.Message+"; "+joined, "; ")
	}
}
