package operand

import v1 "github.com/clusterpolicy/gpu-operator/api/v1"

// Monitor is what render adds to the ServiceMonitor of an instance, and to the PrometheusRule beside it.
type Monitor struct {
	// ServiceMonitor and PrometheusRule report which of them are rendered: those that the spec requests and whose kind
	// the cluster has.
	ServiceMonitor, PrometheusRule bool
	// Labels of both: app, and those by which a Prometheus selects.
	Labels map[string]string
	// Interval and ScrapeTimeout are empty for those of Prometheus.
	Interval, ScrapeTimeout string
	HonorLabels             bool
	Relabelings             []v1.RelabelConfig
}
