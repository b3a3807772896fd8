// Package servicemonitor decides about the ServiceMonitors of the operands that have one.
package servicemonitor

import (
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Of decides about the ServiceMonitor of the Service with this label app, as this block of the spec
// asks for it. Without a ServiceMonitor there is no PrometheusRule: its alerts are about what that one
// collects.
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
