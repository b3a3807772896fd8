package render

import (
	"maps"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// isRendered reports whether an object is rendered: a ServiceMonitor and a PrometheusRule only if the spec requests
// them and the cluster serves the kind, any other object always.
func (r *renderer) isRendered(object manifest.Object) bool {
	switch object.(type) {
	case *monitoringv1.ServiceMonitor:
		return r.instance.Monitor.ServiceMonitor
	case *monitoringv1.PrometheusRule:
		return r.instance.Monitor.PrometheusRule
	}
	return true
}

// applyMonitor adds to a ServiceMonitor or a PrometheusRule what the spec configures for it, to a ServiceMonitor the
// namespace of its Service, and to alerts their runbooks.
func (r *renderer) applyMonitor(object manifest.Object) {
	monitor := r.instance.Monitor
	switch object := object.(type) {
	case *monitoringv1.PrometheusRule:
		object.Labels = maps.Clone(monitor.Labels)
		addRunbooks(object.Spec.Groups)
	case *monitoringv1.ServiceMonitor:
		object.Labels = maps.Clone(monitor.Labels)
		object.Spec.NamespaceSelector.MatchNames = []string{r.context.Namespace}
		for i := range object.Spec.Endpoints {
			endpoint := &object.Spec.Endpoints[i]
			endpoint.Interval = monitoringv1.Duration(monitor.Interval)
			endpoint.ScrapeTimeout = monitoringv1.Duration(monitor.ScrapeTimeout)
			endpoint.HonorLabels = monitor.HonorLabels
			endpoint.RelabelConfigs = relabelings(monitor.Relabelings)
		}
	}
}

// addRunbooks adds to each alert the address of its section in the documentation.
func addRunbooks(groups []monitoringv1.RuleGroup) {
	for _, group := range groups {
		for i := range group.Rules {
			if rule := &group.Rules[i]; rule.Alert != "" {
				rule.Annotations["runbook_url"] = version.Runbooks(version.Version) + "#" + strings.ToLower(rule.Alert)
			}
		}
	}
}

func relabelings(configs []v1.RelabelConfig) []monitoringv1.RelabelConfig {
	var converted []monitoringv1.RelabelConfig
	for _, config := range configs {
		var sources []monitoringv1.LabelName
		for _, label := range config.SourceLabels {
			sources = append(sources, monitoringv1.LabelName(label))
		}
		converted = append(converted, monitoringv1.RelabelConfig{
			SourceLabels: sources, Separator: config.Separator, TargetLabel: config.TargetLabel, Regex: config.Regex,
			Modulus: config.Modulus, Replacement: config.Replacement, Action: config.Action,
		})
	}
	return converted
}
