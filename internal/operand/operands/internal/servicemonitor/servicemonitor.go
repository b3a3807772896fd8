// Package servicemonitor decides whether and how the ServiceMonitors of operands are rendered.
package servicemonitor

import (
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Of returns the settings of the ServiceMonitor for the Service with this label app, from its block of the spec.
// Without a ServiceMonitor there is no PrometheusRule, as its alerts use the metrics that the ServiceMonitor collects.
func Of(in operand.Input, app string, spec *v1.ServiceMonitorSpec) operand.Monitor {
	monitor := operand.Monitor{
		Labels:        map[string]string{labels.App: app},
		Interval:      spec.Interval,
		ScrapeTimeout: spec.ScrapeTimeout,
		HonorLabels:   *spec.HonorLabels,
		Relabelings:   spec.Relabelings,
	}
	maps.Copy(monitor.Labels, spec.AdditionalLabels.Strings())
	if *spec.Enabled {
		monitor.ServiceMonitor = in.Optional[operand.ServiceMonitor]
		monitor.PrometheusRule = in.Optional[operand.ServiceMonitor] && in.Optional[operand.PrometheusRule]
	}
	return monitor
}
