package migrationsteps

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// nfdTaints is the annotation in which Node Feature Discovery lists its taints, as KEY=VALUE:EFFECT.
const nfdTaints = labels.NFDPrefix + "taints"

// isNFDs reports whether an annotation of a Node is one by which an instance of Node Feature Discovery marks it.
func isNFDs(key string) bool {
	return strings.HasPrefix(key, labels.NFDPrefix) || strings.Contains(key, "."+labels.NFDPrefix)
}

// unknownLabels returns the labels of Node Feature Discovery on a Node that node discovery does not write, sorted.
func unknownLabels(node *unstructured.Unstructured) []string {
	var keys []string
	for key := range labels.ListedByNFD(node.GetAnnotations()) {
		if _, there := node.GetLabels()[key]; there && !labels.IsNodeFact(key) && !labels.IsFeature(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// HandOver returns the merge patch of a Node by which node discovery takes over the labels that it writes too: Node
// Feature Discovery lists them no more. No label changes. The annotation still lists those that node discovery does not
// write; all other annotations and the taints of Node Feature Discovery go. It returns nil if nothing changes.
func HandOver(node *unstructured.Unstructured) map[string]any {
	annotations := map[string]any{}
	for key := range node.GetAnnotations() {
		if isNFDs(key) {
			annotations[key] = nil
		}
	}
	if unknown := unknownLabels(node); len(unknown) > 0 {
		for i := range unknown {
			unknown[i] = strings.TrimPrefix(unknown[i], labels.DiscoveryPrefix)
		}
		annotations[labels.NFDFeatureLabels] = strings.Join(unknown, ",")
	}
	maps.DeleteFunc(annotations, func(key string, value any) bool {
		now, there := node.GetAnnotations()[key]
		return there && value == now
	})
	if len(annotations) == 0 {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if taints, changed := taintsLeft(node); changed {
		patch["metadata"] = map[string]any{"annotations": annotations, "resourceVersion": node.GetResourceVersion()}
		patch["spec"] = map[string]any{"taints": taints}
	}
	return patch
}

// taintsLeft returns the taints of a Node without those of Node Feature Discovery, and whether it has any of these.
func taintsLeft(node *unstructured.Unstructured) (left []any, changed bool) {
	theirs := strings.Split(node.GetAnnotations()[nfdTaints], ",")
	all, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	left = slices.DeleteFunc(slices.Clone(all), func(taint any) bool {
		fields, _ := taint.(map[string]any)
		return slices.Contains(theirs, taintText(fields))
	})
	return left, len(left) < len(all)
}

func taintText(taint map[string]any) string {
	key, _ := taint["key"].(string)
	value, _ := taint["value"].(string)
	effect, _ := taint["effect"].(string)
	if value != "" {
		key += "=" + value
	}
	return key + ":" + effect
}

// RemoveUnknown returns the merge patch of a Node that removes the labels of Node Feature Discovery that node discovery
// does not write, and their list; nil if there are none.
func RemoveUnknown(node *unstructured.Unstructured) map[string]any {
	unknown := unknownLabels(node)
	if len(unknown) == 0 {
		return nil
	}
	removed := map[string]any{}
	for _, key := range unknown {
		removed[key] = nil
	}
	return map[string]any{"metadata": map[string]any{
		"labels": removed, "annotations": map[string]any{labels.NFDFeatureLabels: nil},
	}}
}

// IsTakenOver reports whether node discovery writes the labels of a Node: it always finds the kernel. A Node whose
// kubelet does not run is left out: node discovery takes its labels over once it runs again.
func IsTakenOver(node *unstructured.Unstructured) bool {
	own := strings.Split(node.GetAnnotations()[labels.DiscoveredLabels], ",")
	_, there := node.GetLabels()[labels.DiscoveryKernel]
	return !there || slices.Contains(own, labels.DiscoveryKernel) || !isReady(node)
}

// isReady reports whether a Node or a Pod has the condition Ready.
func isReady(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == "Ready" && fields["status"] == "True"
	})
}
