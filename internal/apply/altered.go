package apply

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// AlteredError means that an object was stored with another value than the applied one: something changes it in every
// write.
type AlteredError struct {
	// Object is the kind and name.
	Object string
	// Field is the path of the first field that differs, such as spec.template.spec.containers[nvidia-driver-ctr].image.
	Field string
	// Manager is the field manager that owns the field, empty if unknown. Admission webhooks and policies are unknown:
	// their changes are recorded under the operator's field manager.
	Manager string
}

func (e *AlteredError) Error() string {
	by := "an admission webhook or policy"
	if e.Manager != "" {
		by = "field manager " + e.Manager
	}
	return e.Object + " was altered when it was applied: " + by + " changes " + e.Field +
		"; exempt the object, or set the same value in the ClusterPolicy"
}

// segment is one part of a path.
type segment struct {
	// text is its printed form, managed its key in managedFields; managed is empty for an element of a list without merge
	// keys.
	text, managed string
}

// path leads from an object to one of its fields. An empty path is the object itself.
type path []segment

func keySegment(key string) segment {
	if strings.ContainsAny(key, "./") {
		return segment{text: "[" + key + "]", managed: "f:" + key}
	}
	return segment{text: "." + key, managed: "f:" + key}
}

func (p path) String() string {
	var text strings.Builder
	for _, s := range p {
		text.WriteString(s.text)
	}
	return strings.TrimPrefix(text.String(), ".")
}

// managerOf returns the field manager other than the operator that owns the field, or "" if there is none.
func managerOf(field path, entries []metav1.ManagedFieldsEntry) string {
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
func manages(fields map[string]any, field path) bool {
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
