package operand

import (
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Monitor is what templates see of a ServiceMonitor, and of the PrometheusRule beside it.
type Monitor struct {
	// ServiceMonitor and PrometheusRule tell which of them are rendered: those that the spec asks for and
	// whose kind the cluster has.
	ServiceMonitor, PrometheusRule bool
	// Labels of both: app, and those by which a Prometheus selects.
	Labels map[string]string
	// Interval and ScrapeTimeout are empty for those of Prometheus.
	Interval, ScrapeTimeout string
	HonorLabels             bool
	Relabelings             []v1.RelabelConfig
}

// Monitor decides about the ServiceMonitor of the Service with this label app, as this block of the spec
// asks for it. Without a ServiceMonitor there is no PrometheusRule: its alerts are about what that one
// collects.
func (in Input) Monitor(app string, spec *v1.ServiceMonitorSpec) Monitor {
	monitor := Monitor{
		Labels:        map[string]string{labels.App: app},
		Interval:      spec.Interval,
		ScrapeTimeout: spec.ScrapeTimeout,
		HonorLabels:   *spec.HonorLabels,
		Relabelings:   spec.Relabelings,
	}
	maps.Copy(monitor.Labels, spec.AdditionalLabels.Strings())
	if *spec.Enabled {
		monitor.ServiceMonitor = in.Optional[ServiceMonitor]
		monitor.PrometheusRule = in.Optional[ServiceMonitor] && in.Optional[PrometheusRule]
	}
	return monitor
}
