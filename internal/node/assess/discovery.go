package assess

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// findMissingLabels finds since when discovery labels have been missing from the node, and when operands are removed.
func findMissingLabels(in Input, _ Assessment) finding {
	since, err := time.Parse(time.RFC3339, in.Node.Annotations[labels.DiscoveryMissingSince])
	if err != nil || in.NodePlan.MissingLabels == "" {
		return finding{}
	}
	return cause(v1.ReasonDiscoveryLabelsMissing, fmt.Sprintf("%s since %s; %s", in.NodePlan.MissingLabels,
		since.UTC().Format(time.RFC3339), plannedRemoval(in.NodePlan, in.Node, since)))
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
