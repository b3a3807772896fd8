package assess

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// checkDiscovery reports since when discovery labels have been missing from the node, and when operands are removed. A
// ready node stays ready. A progressing node is moved back to stage Discovered: its operands stay, but whether it needs
// them is unknown. A failure takes precedence.
func (a *Assessment) checkDiscovery(in Input) {
	since, err := time.Parse(time.RFC3339, in.Node.Annotations[labels.DiscoveryMissingSince])
	if err != nil || in.NodePlan.MissingLabels == "" {
		return
	}
	missing := fmt.Sprintf("%s since %s; %s", in.NodePlan.MissingLabels, since.UTC().Format(time.RFC3339),
		plannedRemoval(in.NodePlan, in.Node, since))
	switch {
	case a.State == readiness.Failed || a.Reason == v1.ReasonNodeNotReady:
		// Part of the message, not of the detail, because it is stable.
		a.Message += " (" + missing + ")"
		return
	case a.State == readiness.Progressing:
		if a.Operand != "" {
			a.Message = a.Operand + ": " + a.Message
		}
		a.Stage, a.Operand = v1.StageDiscovered, ""
	case a.Outdated:
		// The command comes first because long messages are truncated in the policy's status.
		a.Reason, a.Message = v1.ReasonDiscoveryLabelsMissing, a.Message+"; "+missing
		return
	}
	a.Reason, a.Message = v1.ReasonDiscoveryLabelsMissing, strings.TrimSuffix(missing+"; "+a.Message, "; ")
}

// plannedRemoval returns what is removed, and when, unless the labels reappear.
func plannedRemoval(node plan.NodePlan, object *corev1.Node, since time.Time) string {
	grace := node.Spec.NodeDiscovery.GracePeriod.Duration
	if node.Facts.DescribeMissingLabels() == "" {
		return "the operand is removed at " + since.Add(grace).UTC().Format(time.RFC3339)
	}
	lost, err := time.Parse(time.RFC3339, object.Annotations[labels.DiscoveryLostSince])
	if err != nil {
		return "its operands are kept"
	}
	return fmt.Sprintf("its operands are removed at %s if no pod uses GPUs", lost.Add(grace).UTC().Format(time.RFC3339))
}
