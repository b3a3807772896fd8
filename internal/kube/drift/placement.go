package drift

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// podSpecPath is the path of the pod spec in a DaemonSet.
var podSpecPath = []string{"spec", "template", "spec"}

// placementFields are the fields of a pod spec that decide on which nodes pods run. Additions of other writers are
// removed, since they may empty every node; in other fields, such as containers, they stay.
var placementFields = []string{"affinity", "nodeSelector", "tolerations"}

func isPlacementField(intent *unstructured.Unstructured, field Path) bool {
	if !hasPodTemplate(intent) || len(field) <= len(podSpecPath) {
		return false
	}
	for i, key := range podSpecPath {
		if field[i] != keySegment(key) {
			return false
		}
	}
	return slices.ContainsFunc(
		placementFields, func(name string) bool { return field[len(podSpecPath)] == keySegment(name) },
	)
}

func hasPodTemplate(intent *unstructured.Unstructured) bool { return intent.GetKind() == "DaemonSet" }

// Additions returns the paths of what other writers added to the placement fields of a DaemonSet. The live object must
// already have all of the intent.
func Additions(intent *unstructured.Unstructured, live map[string]any) []Path {
	if !hasPodTemplate(intent) {
		return nil
	}
	var at Path
	for _, key := range podSpecPath {
		at = append(at, keySegment(key))
	}
	want, _, _ := unstructured.NestedMap(intent.Object, podSpecPath...)
	have, _, _ := unstructured.NestedFieldNoCopy(live, podSpecPath...)
	pod, _ := have.(map[string]any)
	var found []Path
	for _, name := range placementFields {
		if value, there := pod[name]; there && !isEmpty(value) {
			found = append(found, additionsTo(want[name], value, append(slices.Clone(at), keySegment(name)))...)
		}
	}
	return found
}

// additionsTo returns the paths that a field has beyond the intent. Lists have none: they are already equal.
func additionsTo(want, have any, at Path) []Path {
	wanted, _ := want.(map[string]any)
	switch has, isMap := have.(map[string]any); {
	case isEmpty(want):
		return []Path{at}
	case !isMap:
		return nil
	default:
		var found []Path
		for _, key := range slices.Sorted(maps.Keys(has)) {
			if !isEmpty(has[key]) {
				found = append(found, additionsTo(wanted[key], has[key], append(slices.Clone(at), keySegment(key)))...)
			}
		}
		return found
	}
}

// patchOperation is one operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// RemovalPatch returns a JSON patch that removes the fields from an object of the given resource version only.
func RemovalPatch(version string, fields []Path) ([]byte, error) {
	operations := []patchOperation{{Op: "replace", Path: "/metadata/resourceVersion", Value: version}}
	for _, field := range fields {
		operations = append(operations, patchOperation{Op: "remove", Path: field.pointer()})
	}
	return json.Marshal(operations)
}
