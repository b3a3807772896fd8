package assess

import (
	"fmt"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

// checkTaints reports a node with usable GPUs as progressing while it still has start-up taints. That takes one write,
// unless the API server rejects the write.
func (a *Assessment) checkTaints(in Input) {
	a.Usable = a.State == readiness.Ready
	var left []string
	for _, taint := range in.Node.Spec.Taints {
		if startuptaint.Is(in.NodePlan.Spec.NodeStartup.Taints, taint) {
			left = append(left, taint.Key)
		}
	}
	if !a.Usable || len(left) == 0 {
		return
	}
	a.NodeVerdict = readiness.NodeVerdict{Stage: v1.StageValidated, Verdict: readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonStartupTaint, Outdated: a.Outdated,
		// The key and the remedy come first because long messages are truncated in the policy's status.
		Message: fmt.Sprintf("start-up taint %s is still set: add it to the chart's nodeStartup.taints, "+
			"or to ownTaints of %s; the GPUs can be used, but the operator may remove only the taints listed there",
			strings.Join(left, ", "), nodeAdmissionPolicy),
	}}
}

// nodeAdmissionPolicy is the admission policy that limits what the operator may write to nodes.
const nodeAdmissionPolicy = "ValidatingAdmissionPolicy gpu-operator-operator"
