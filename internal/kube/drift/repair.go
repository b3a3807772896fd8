package drift

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Repair is drift of an object that was reverted.
type Repair struct {
	// Object is kind and name, Version the resource version with the drift.
	Object, Version string
	// Field is the path of the first field that differed, Manager the field manager that set it, empty if unknown.
	Field, Manager string
	// Placement: the field decides on which nodes pods run.
	Placement bool
	// Instead is what to do instead of an edit, by the object's annotation; empty if it has none.
	Instead string
}

func (r *Repair) String() string {
	by, effect := "another client", ""
	if r.Manager != "" {
		by = "field manager " + r.Manager
	}
	instead := cmp.Or(r.Instead, "set the value in the ClusterPolicy, where that has a field for it,")
	if r.Placement {
		effect = ", which decides on which nodes the pods run"
		instead = "set nodeSelector or tolerations in the ClusterPolicy"
	}
	return fmt.Sprintf("%s: %s changed %s%s. The operator has reverted the change: %s instead", r.Object, by, r.Field,
		effect, instead)
}

// RepairOf returns the repair of a live object whose intent has not changed since it was applied, or nil if it has, and
// for a new object. field is the first difference. managed are the managed fields after the apply: the cache may not
// have those from before.
func RepairOf(
	intent *unstructured.Unstructured, live metav1.Object, field Path, managed []metav1.ManagedFieldsEntry,
) *Repair {
	if live == nil || live.GetAnnotations()[labels.Digest] != intent.GetAnnotations()[labels.Digest] {
		return nil
	}
	return &Repair{
		Object: intent.GetKind() + " " + intent.GetName(), Version: live.GetResourceVersion(),
		Field: field.String(), Manager: ManagerOf(field, append(slices.Clone(live.GetManagedFields()), managed...)),
		Placement: isPlacementField(intent, field), Instead: intent.GetAnnotations()[labels.EditInstead],
	}
}
