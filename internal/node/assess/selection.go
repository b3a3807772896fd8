package assess

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// findSelection finds the operands that a nodeSelector keeps off a node, or would keep off but for pods that use them,
// and a driver that no NVIDIADriver object, or several, declare.
func findSelection(in Input, _ Assessment) finding {
	if in.NodePlan.RetainedDriver != "" {
		return outdated(in.NodePlan.RetainedDriver)
	}
	for _, onNode := range in.NodePlan.Essential {
		if onNode.Undeclared() {
			return cause(onNode.Reason, "keeps its driver: "+onNode.Message)
		}
	}
	var absent []string
	message := ""
	for _, onNode := range slices.Concat(in.NodePlan.Essential, in.NodePlan.Auxiliary) {
		if onNode.Reason == v1.ReasonNotSelected {
			absent, message = append(absent, string(onNode.Operand)), onNode.Message
		}
	}
	if len(absent) == 0 {
		return finding{}
	}
	return cause(v1.ReasonNotSelected, fmt.Sprintf("does not run %s: %s", strings.Join(absent, ", "), message))
}

func findRefusedPods(in Input, _ Assessment) finding {
	return cause(v1.ReasonGPUPodsRefused, in.RefusedPods)
}

// findLabelNotes finds the labels and annotations of a node that have no effect: they are no reason of their own.
func findLabelNotes(in Input, _ Assessment) finding {
	notes := in.NodePlan.LabelNotes
	requested := in.Node.Annotations[labels.UpgradeRequested]
	if requested != "" && requested != labels.True && requested != labels.False {
		notes = append(slices.Clip(notes), fmt.Sprintf("annotation %s is %q, which requests no upgrade: only %q does",
			labels.UpgradeRequested, requested, labels.True))
	}
	return cause("", strings.Join(notes, "; "))
}
