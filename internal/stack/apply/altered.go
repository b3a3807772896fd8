package apply

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
	by := "a mutating admission webhook or policy"
	if e.Manager != "" {
		by = "field manager " + e.Manager
	}
	return by + " changes " + e.Field + " of " + e.Object + " whenever the operator applies it: " +
		"exempt the object there, or set the same value in the ClusterPolicy"
}
