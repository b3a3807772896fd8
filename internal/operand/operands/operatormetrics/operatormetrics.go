package operatormetrics

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/servicemonitor"
)

// Name of the operand.
const Name operand.Name = "operator-metrics"

// app is the name of the Service, and the label app of the operator's own pods, see config/manager.
const app = "gpu-operator"

// scrape is the annotation of Services that Prometheus scrapes by a common scrape configuration.
const scrape = "prometheus.io/scrape"

// Operand is the Service for the operator's metrics, with its ServiceMonitor and alerts.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Decide:    func(operand.Input) operand.Decision { return operand.Accept() },
		Instances: instances,
	}
}

// IsPlain reports whether a Service is the one of this operand for metrics that are served by plain HTTP.
func IsPlain(service *corev1.Service) bool {
	return service.Labels[labels.Operand] == string(Name) && service.Annotations[scrape] == labels.True
}

type values struct {
	// TLS is how Prometheus verifies the certificate; nil for plain HTTP.
	TLS *tlsConfig
	// Annotations of the Service.
	Annotations map[string]string
}

// tlsConfig has the fields of the Prometheus operator's TLSConfig that the ServiceMonitor needs.
type tlsConfig struct {
	ServerName         string    `json:"serverName,omitempty"`
	InsecureSkipVerify bool      `json:"insecureSkipVerify,omitempty"`
	CA                 *caSource `json:"ca,omitempty"`
}

type caSource struct {
	Secret corev1.SecretKeySelector `json:"secret"`
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	v := values{TLS: tlsOf(in), Annotations: map[string]string{}}
	if in.AppliedSpec != "" {
		v.Annotations[labels.AppliedSpec] = in.AppliedSpec
	}
	if in.OperatorMetrics.Plain {
		// A Prometheus that scrapes annotated Services uses plain HTTP and has no token.
		v.Annotations[scrape] = labels.True
	}
	return []operand.Instance{
		{Monitor: servicemonitor.Of(in, app, in.Spec.Operator.Metrics.ServiceMonitor), Values: v},
	}, nil
}

func tlsOf(in operand.Input) *tlsConfig {
	endpoint := in.OperatorMetrics
	if endpoint.Plain {
		return nil
	}
	// By default the operator creates a self-signed certificate at each start, which no client can verify.
	tls := &tlsConfig{InsecureSkipVerify: !endpoint.Certified}
	if endpoint.Certified {
		tls.ServerName = app + "." + in.Namespace + ".svc"
	}
	if endpoint.CASecret != "" {
		tls.CA = &caSource{Secret: corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: endpoint.CASecret}, Key: "ca.crt",
		}}
	}
	return tls
}
