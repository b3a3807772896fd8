package v1

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// Labels are labels of objects, or of nodes that are selected.
// +kubebuilder:validation:MaxProperties=100
type Labels map[string]LabelValue

// AnnotationValue is the value of an annotation: Kubernetes bounds all of an object's together.
// +kubebuilder:validation:MaxLength=262144
type AnnotationValue string

// Annotations are annotations of objects.
// +kubebuilder:validation:MaxProperties=100
type Annotations map[string]AnnotationValue

// Strings is a copy with the type that Kubernetes has for labels; nil of none.
func (l Labels) Strings() map[string]string { return stringsOf(l) }

// Strings is a copy with the type that Kubernetes has for annotations; nil of none.
func (a Annotations) Strings() map[string]string { return stringsOf(a) }

func stringsOf[M ~map[string]V, V ~string](values M) map[string]string {
	if len(values) == 0 {
		return nil
	}
	copied := make(map[string]string, len(values))
	for key, value := range values {
		copied[key] = string(value)
	}
	return copied
}
