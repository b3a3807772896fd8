package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// The API server authenticates and authorizes clients of the metrics endpoint.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Flags of the metrics endpoint that error messages name.
const (
	flagMetricsSecure   = "metrics-secure"
	flagMetricsCertDir  = "metrics-cert-dir"
	flagMetricsCASecret = "metrics-ca-secret"
)

// metricsOptions configures how the manager's metrics are served.
type metricsOptions struct {
	address, certDir, caSecret string
	secure                     bool
}

func (o *metricsOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "metrics-bind-address", ":8080", "address of the metrics endpoint; 0 disables it")
	flags.BoolVar(&o.secure, flagMetricsSecure, true,
		"serve metrics over HTTPS to clients that may get /metrics; false serves plain HTTP without authorization")
	flags.StringVar(&o.certDir, flagMetricsCertDir, "",
		"directory with tls.crt and tls.key for metrics, reloaded when they change (default: a self-signed certificate)")
	flags.StringVar(&o.caSecret, flagMetricsCASecret, "",
		"Secret in the operator's namespace with the ca.crt that signed the certificate; the ServiceMonitor refers to it")
}

// check rejects contradicting flags and a missing certificate, for which the server would silently generate its own.
func (o *metricsOptions) check() error {
	if !o.secure && (o.certDir != "" || o.caSecret != "") {
		return fmt.Errorf("--%s and --%s need HTTPS: remove them, or remove --%s=false", flagMetricsCertDir,
			flagMetricsCASecret, flagMetricsSecure)
	}
	if o.caSecret != "" && o.certDir == "" {
		return fmt.Errorf("--%s is set without --%s: a self-signed certificate has no CA; set both flags or neither",
			flagMetricsCASecret, flagMetricsCertDir)
	}
	if o.certDir == "" {
		return nil
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(o.certDir, name)); err != nil {
			return fmt.Errorf("--%s=%s has no usable %s: %w: mount the Secret with the certificate there", flagMetricsCertDir,
				o.certDir, name, errors.Unwrap(err))
		}
	}
	return nil
}

// endpoint returns what the ServiceMonitor needs to scrape it.
func (o *metricsOptions) endpoint() operand.MetricsEndpoint {
	return operand.MetricsEndpoint{Plain: !o.secure, Certified: o.certDir != "", CASecret: o.caSecret}
}
