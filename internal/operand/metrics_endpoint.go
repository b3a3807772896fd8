package operand

// MetricsEndpoint is how the manager serves its own metrics, as its flags say. The zero value is HTTPS with a
// self-signed certificate, for those whose token may get /metrics.
type MetricsEndpoint struct {
	// Plain is HTTP without a token.
	Plain bool
	// Certified is a certificate that was given, for the name of the Service; not self-signed.
	Certified bool
	// CASecret is the Secret in the operator's namespace whose key ca.crt vouches for that certificate; empty for
	// one that Prometheus trusts anyway.
	CASecret string
}
