package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// podSpecPath is the path of the pod spec in a DaemonSet.
var podSpecPath = []string{"spec", "template", "spec"}

// placementFields are the fields of a pod spec that decide on which nodes pods run. Additions of other writers are
// removed, since they may empty every node; in other fields, such as containers, they stay.
var placementFields = []string{"affinity", "nodeSelector", "tolerations"}

// Repair is drift of the placement fields of an object that was reverted.
type Repair struct {
	// Object is kind and name, Version the resource version with the drift.
	Object, Version string
	// Field is the path of the first field that differed, Manager the field manager that set it, empty if unknown.
	Field, Manager string
}

func (r *Repair) String() string {
	by := "another client"
	if r.Manager != "" {
		by = "field manager " + r.Manager
	}
	return fmt.Sprintf(
		"%s: %s had changed %s, which decides on which nodes its pods run; reverted: set it in the ClusterPolicy instead",
		r.Object, by, r.Field,
	)
}

// repairOf returns the Repair of a live object whose intent has not changed since it was applied, or nil if field, the
// first difference, is no placement field. managed are the managed fields after the apply: the cache may not have those
// from before.
func repairOf(w write, live client.Object, field path, managed []metav1.ManagedFieldsEntry) *Repair {
	if live == nil || live.GetAnnotations()[labels.Digest] != w.desired.GetAnnotations()[labels.Digest] ||
		!isPlacementField(w, field) {
		return nil
	}
	return &Repair{
		Object: describe(w.intent), Version: live.GetResourceVersion(),
		Field: field.String(), Manager: managerOf(field, append(slices.Clone(live.GetManagedFields()), managed...)),
	}
}

func isPlacementField(w write, field path) bool {
	if !hasPodTemplate(w) || len(field) <= len(podSpecPath) {
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

func hasPodTemplate(w write) bool { return w.desired.GetKind() == "DaemonSet" }

// additions returns the paths of what other writers added to the placement fields. The live object must already have
// all of the intent.
func additions(w write, live map[string]any) []path {
	if !hasPodTemplate(w) {
		return nil
	}
	var at path
	for _, key := range podSpecPath {
		at = append(at, keySegment(key))
	}
	want, _, _ := unstructured.NestedMap(w.desired.Object, podSpecPath...)
	have, _, _ := unstructured.NestedFieldNoCopy(live, podSpecPath...)
	pod, _ := have.(map[string]any)
	var found []path
	for _, name := range placementFields {
		if value, there := pod[name]; there && !isEmpty(value) {
			found = append(found, additionsTo(want[name], value, append(slices.Clone(at), keySegment(name)))...)
		}
	}
	return found
}

// additionsTo returns the paths that a field has beyond the intent. Lists have none: they are already equal.
func additionsTo(want, have any, at path) []path {
	wanted, _ := want.(map[string]any)
	switch has, isMap := have.(map[string]any); {
	case isEmpty(want):
		return []path{at}
	case !isMap:
		return nil
	default:
		var found []path
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

// removeAdditions removes the paths from the object, guarded by its resource version, and returns the result. An apply
// alone leaves fields that it does not own.
func (a *Applier) removeAdditions(
	ctx context.Context, w write, version string, found []path,
) (*unstructured.Unstructured, error) {
	operations := []patchOperation{{Op: "replace", Path: "/metadata/resourceVersion", Value: version}}
	for _, at := range found {
		operations = append(operations, patchOperation{Op: "remove", Path: at.pointer()})
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of %s: %w", describe(w.intent), err)
	}
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(w.desired.GroupVersionKind())
	answer.SetNamespace(w.desired.GetNamespace())
	answer.SetName(w.desired.GetName())
	err = a.request(ctx, "patching "+describe(w.intent), func(ctx context.Context) error {
		return a.client.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(labels.FieldOwner))
	})
	return answer, err
}

// pointer returns the path as a JSON pointer (RFC 6901).
func (p path) pointer() string {
	var text strings.Builder
	for _, s := range p {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(strings.TrimPrefix(s.managed, "f:")))
	}
	return text.String()
}

// diff returns the first field in which the live object differs from the intent, or has additions to a placement field,
// or nil.
func diff(w write, live map[string]any) path {
	if field := diffSubset(w.desired.Object, live, ""); field != nil {
		return field
	}
	if found := additions(w, live); len(found) > 0 {
		return found[0]
	}
	return nil
}
