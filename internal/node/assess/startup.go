package assess

import (
	"fmt"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

// findTaints finds start-up taints of a node with usable GPUs. To remove them takes one write, unless the API server
// rejects the write.
func findTaints(in Input, so Assessment) finding {
	var left []string
	for _, taint := range in.Node.Spec.Taints {
		if startuptaint.Is(in.NodePlan.Spec.NodeStartup.Taints, taint) {
			left = append(left, taint.Key)
		}
	}
	if len(left) == 0 {
		return finding{}
	}
	return verdictAt(v1.StageValidated, "", readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonStartupTaint, Outdated: so.Outdated,
		// The key and the remedy come first because long messages are truncated in the policy's status.
		Message: fmt.Sprintf("start-up taint %s is still set: add it to the chart's nodeStartup.taints, "+
			"or to ownTaints of ValidatingAdmissionPolicy gpu-operator-operator; the GPUs can be used, but the operator may "+
			"remove only the taints listed there", strings.Join(left, ", ")),
	})
}

// findOverdue finds a node that has been progressing for longer than the deadline of its stage, or when it will have
// been. The time counts from the previous assessment or from the pods, whichever is later. A paused operand has no
// deadline, and driver upgrades have their own.
func findOverdue(in Input, so Assessment) finding {
	if in.upgrades() {
		return finding{}
	}
	since := in.since(false)
	for _, onNode := range in.NodePlan.Essential {
		if pod := in.Pods[onNode.Operand]; pod != nil && onNode.Stage.Before(so.Stage) {
			since = times.Later(since, readiness.ReadySince(pod))
		}
	}
	so.Verdict = readiness.ApplyDeadline(in.NodePlan.Spec.Deadline(so.Stage), so.Verdict, since, in.Now)
	return finding{NodeVerdict: so.NodeVerdict}
}
