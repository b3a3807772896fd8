package drift

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// ManagerOf returns the field manager other than the operator that owns the field, or "" if there is none.
func ManagerOf(field Path, entries []metav1.ManagedFieldsEntry) string {
	for _, entry := range entries {
		if entry.Manager == labels.FieldOwner || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && manages(fields, field) {
			return entry.Manager
		}
	}
	return ""
}

// manages reports whether the fields, in the format of managedFields, include the field, or an atomic one around it.
func manages(fields map[string]any, field Path) bool {
	if len(fields) == 0 {
		return false
	}
	for _, s := range field {
		if len(fields) == 0 {
			break
		}
		inner, has := fields[s.managed].(map[string]any)
		if !has {
			return false
		}
		fields = inner
	}
	return true
}
