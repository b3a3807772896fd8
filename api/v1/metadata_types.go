package v1

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$')",message="must be letters and digits, with '-', '_' or '.' between them"
type LabelValue string

// Labels are labels of objects, or a selector for node labels.
// +kubebuilder:validation:MaxProperties=100
// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9][-a-z0-9.]{0,252}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="keys must be label keys, such as team or example.com/team"
type Labels map[string]LabelValue

// AnnotationValue is the value of an annotation. Kubernetes limits the total size of an object's annotations.
// +kubebuilder:validation:MaxLength=262144
type AnnotationValue string

// Annotations are annotations of objects.
// +kubebuilder:validation:MaxProperties=100
// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-zA-Z0-9][-a-zA-Z0-9.]{0,252}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$'))",message="keys must be annotation keys, such as note or example.com/note"
type Annotations map[string]AnnotationValue

// Strings returns a copy as the type that Kubernetes uses for labels, nil if empty.
func (l Labels) Strings() map[string]string { return stringsOf(l) }

// Strings returns a copy as the type that Kubernetes uses for annotations, nil if empty.
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
