package assess

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// checkDiscovery reports since when discovery labels have been missing from the node, and what follows. A node whose
// GPUs can be used stays ready. One that is progressing is held up by that first: what it has of operands stays, but
// whether it needs them is unknown. A failure comes before it.
func (a *Assessment) checkDiscovery(in Input) {
	since, err := time.Parse(time.RFC3339, in.Node.Annotations[labels.DiscoveryMissingSince])
	if err != nil || in.Plan.Missing == "" {
		return
	}
	says := fmt.Sprintf("%s since %s; %s", in.Plan.Missing, since.UTC().Format(time.RFC3339), plannedRemoval(in.Plan, in.Node, since))
	switch {
	case a.State == readiness.Failed || a.Reason == v1.ReasonNodeNotReady:
		// What follows the message may change with each attempt, and this does not.
		a.Message += " (" + says + ")"
		return
	case a.State == readiness.Progressing:
		if a.Operand != "" {
			a.Message = a.Operand + ": " + a.Message
		}
		a.Stage, a.Operand = v1.StageDiscovered, ""
	case a.Outdated:
		// The command comes first, as a long message is cut in the policy's status.
		a.Reason, a.Message = v1.ReasonDiscoveryLabelsMissing, a.Message+"; "+says
		return
	}
	a.Reason, a.Message = v1.ReasonDiscoveryLabelsMissing, strings.TrimSuffix(says+"; "+a.Message, "; ")
}

// plannedRemoval tells what happens if the labels stay away.
func plannedRemoval(node plan.Node, object *corev1.Node, since time.Time) string {
	grace := node.Spec.NodeDiscovery.GracePeriod.Duration
	if node.Facts.MissingLabels() == "" {
		return "the operand goes at " + since.Add(grace).UTC().Format(time.RFC3339)
	}
	lost, err := time.Parse(time.RFC3339, object.Annotations[labels.DiscoveryLostSince])
	if err != nil {
		return "nothing is taken off the node"
	}
	return fmt.Sprintf("operands go at %s if no pod uses GPUs", lost.Add(grace).UTC().Format(time.RFC3339))
}
