package operand

// MetricsEndpoint describes how the manager serves its own metrics, by its flags. The zero value is HTTPS with a
// self-signed certificate, for clients whose token may get /metrics.
type MetricsEndpoint struct {
	// Plain means HTTP without authentication.
	Plain bool
	// Certified means a provided certificate for the name of the Service, not a self-signed one.
	Certified bool
	// CASecret is the Secret in the operator's namespace whose key ca.crt has the CA of that certificate; empty for a CA
	// that Prometheus trusts by default.
	CASecret string
}
