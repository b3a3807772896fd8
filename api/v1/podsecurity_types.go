package v1

// PSASpec configures Pod Security Admission.
type PSASpec struct {
	// Enabled labels the operator's namespace with the Pod Security level privileged, which the operands need. Default
	// false.
	//
	// It sets pod-security.kubernetes.io/enforce, audit and warn. If false, the administrator manages these labels.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// PSPSpec is deprecated and has no effect: Kubernetes 1.25 removed PodSecurityPolicy. Use psa.
type PSPSpec struct {
	// Enabled is deprecated and has no effect: use psa.enabled.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}
