package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// judgeTaints holds a node up whose GPUs can be used and whose start-up taints still keep pods off it. That lasts
// for the time of one write, unless the API server refuses that.
func (assessment *NodeAssessment) judgeTaints(node plan.Node, object *corev1.Node) {
	assessment.Usable = assessment.State == readiness.Ready
	var left []string
	for _, taint := range object.Spec.Taints {
		if plan.Names(node.Spec.NodeStartup.Taints, taint) {
			left = append(left, taint.Key)
		}
	}
	if !assessment.Usable || len(left) == 0 {
		return
	}
	assessment.NodeVerdict = readiness.NodeVerdict{Stage: v1.StageValidated, Verdict: readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonStartupTaint, Outdated: assessment.Outdated,
		// The key and the remedy come first, as a long message is cut in the policy's status.
		Message: fmt.Sprintf("taint %s stays: name it in the chart's nodeStartup.taints, or in ownTaints of %s; "+
			"the GPUs can be used, and the API server lets the operator take off what is named there", strings.Join(left, ", "), fence),
	}}
}

// fence is the admission policy that bounds what the operator writes on nodes.
const fence = "ValidatingAdmissionPolicy gpu-operator-operator"
