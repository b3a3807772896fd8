package rollout

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Live is the part of a live DaemonSet that rendering depends on.
type Live struct {
	// TemplateDigest is the digest of the significant part of the pod template.
	TemplateDigest string
	// HelperImage is the image of gpu-node that it was last applied with; empty if the spec named it.
	HelperImage string
	// Variant of the nodes that it selects, see operand.Instance; empty if the operand has only one.
	Variant string
	// App is the value of labels.App in its selector.
	App string
	// PartOfInSelector is the value of labels.PartOf in its selector; empty if the selector has none.
	PartOfInSelector string
	// NeedsProbeScript: pods may mount the script with which NVIDIA's operator probes drivers.
	NeedsProbeScript bool
}

// LiveDaemonSet returns what render needs of a live DaemonSet.
func LiveDaemonSet(ds *appsv1.DaemonSet) Live {
	live := Live{
		TemplateDigest:   ds.Annotations[labels.TemplateDigest],
		HelperImage:      ds.Annotations[labels.HelperImage],
		Variant:          variantOf(ds.Spec.Template.Labels),
		NeedsProbeScript: needsProbeScript(ds),
	}
	if ds.Spec.Selector != nil {
		selected := ds.Spec.Selector.MatchLabels
		live.App = selected[labels.App]
		live.PartOfInSelector = selected[labels.PartOf]
	}
	return live
}

// LiveDaemonSets returns the live DaemonSets of an operand out of all of the namespace, by name. One without the label
// of an operand, which NVIDIA's operator has created, counts if it has the operand's name, or if the operand has no
// variants, whose names would be assigned.
func LiveDaemonSets(o *operand.Operand, all map[string]*appsv1.DaemonSet) map[string]Live {
	live := map[string]Live{}
	for name, ds := range all {
		owner := operand.Name(ds.Labels[labels.Operand])
		if owner == o.Name || owner == "" && (o.DaemonSet == "" || name == o.DaemonSet) {
			live[name] = LiveDaemonSet(ds)
		}
	}
	return live
}

// variantOf returns the variant of nodes that pods with these labels are for.
func variantOf(pod map[string]string) string {
	return operand.Variant(pod[labels.Pool], pod[labels.Layout], pod[labels.NodePool])
}

// Variants returns the variants of nodes that the DaemonSets are for, each once, sorted.
func Variants(all map[string]*appsv1.DaemonSet) []string {
	var found []string
	for _, ds := range all {
		if variant := variantOf(ds.Spec.Template.Labels); variant != "" {
			found = append(found, variant)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// LivePod returns what render needs of a deleted DaemonSet of which a pod remains: its variant keeps the name.
func LivePod(pod *corev1.Pod) Live {
	return Live{
		Variant: variantOf(pod.Labels), App: pod.Labels[labels.App], NeedsProbeScript: mountsProbeScript(&pod.Spec),
	}
}
