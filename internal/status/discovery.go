package status

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

// judgeDiscovery tells of a node that lacks discovery labels since when, and what comes of it. One whose GPUs
// can be used stays ready. One on its way is held up by that first: what it has of operands stays, but nobody
// knows whether it needs them. A failure is told before it.
func (assessment *NodeAssessment) judgeDiscovery(node plan.Node, object *corev1.Node) {
	since, err := time.Parse(time.RFC3339, object.Annotations[labels.DiscoveryMissingSince])
	if err != nil || node.Missing == "" {
		return
	}
	says := fmt.Sprintf("%s since %s; %s", node.Missing, since.UTC().Format(time.RFC3339), outlook(node, object, since))
	switch {
	case assessment.State == readiness.Failed || assessment.Reason == v1.ReasonNodeNotReady:
		// What follows the message may change with each attempt, and this does not.
		assessment.Message += " (" + says + ")"
		return
	case assessment.State == readiness.Progressing:
		if assessment.Operand != "" {
			assessment.Message = assessment.Operand + ": " + assessment.Message
		}
		assessment.Stage, assessment.Operand = v1.StageDiscovered, ""
	case assessment.Outdated:
		// The command comes first, as a long message is cut in the policy's status.
		assessment.Reason, assessment.Message = v1.ReasonDiscoveryLabelsMissing, assessment.Message+"; "+says
		return
	}
	assessment.Reason, assessment.Message = v1.ReasonDiscoveryLabelsMissing, strings.TrimSuffix(says+"; "+assessment.Message, "; ")
}

// outlook tells what happens if the labels stay away.
func outlook(node plan.Node, object *corev1.Node, since time.Time) string {
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
