package v1

// PSASpec configures Pod Security Admission.
type PSASpec struct {
	// Enabled labels the operator's namespace with pod-security.kubernetes.io/enforce, audit and warn =
	// privileged, which the operands need where the cluster enforces another level by default. Default
	// false: the labels are the administrator's.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// PSPSpec is deprecated and has no effect: Kubernetes 1.25 removed PodSecurityPolicy. Use psa.
type PSPSpec struct {
	// Enabled is deprecated and has no effect: use psa.enabled.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}
