package render_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// The kinds of the Prometheus operator are rendered only where the cluster has them and the spec requests them.
func TestMonitorsAreLeftOut(t *testing.T) {
	monitors := map[operand.OptionalKind]bool{operand.ServiceMonitor: true}
	for name, test := range map[string]struct {
		optional      map[operand.OptionalKind]bool
		enabled       bool
		monitor, rule bool
	}{
		"enabled":           {optional: prometheus, enabled: true, monitor: true, rule: true},
		"no kind for rules": {optional: monitors, enabled: true, monitor: true},
		"no kind at all":    {enabled: true},
		"disabled":          {optional: prometheus},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{Metrics: &v1.OperatorMetricsSpec{
				ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: &test.enabled},
			}}}
			var monitor, rule bool
			for _, object := range (situation{spec: spec, optional: test.optional}).objects(t)["operator-metrics"] {
				_, isMonitor := object.(*monitoringv1.ServiceMonitor)
				_, isRule := object.(*monitoringv1.PrometheusRule)
				monitor, rule = monitor || isMonitor, rule || isRule
			}
			if monitor != test.monitor || rule != test.rule {
				t.Errorf("ServiceMonitor: %v, PrometheusRule: %v; want %v, %v", monitor, rule, test.monitor, test.rule)
			}
		})
	}
}

// Every field of a relabeling reaches the ServiceMonitor.
func TestRelabelings(t *testing.T) {
	relabeling := v1.RelabelConfig{
		SourceLabels: []string{"a", "b"}, Separator: new(""), TargetLabel: "c",
		Regex: "(.*)", Modulus: 3, Replacement: new("$1"), Action: "hashmod",
	}
	want := monitoringv1.RelabelConfig{
		SourceLabels: []monitoringv1.LabelName{"a", "b"}, Separator: new(""), TargetLabel: "c",
		Regex: "(.*)", Modulus: 3, Replacement: new("$1"), Action: "hashmod",
	}
	spec := v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{
		ServiceMonitor: &v1.ServiceMonitorSpec{Enabled: new(true), Relabelings: []v1.RelabelConfig{relabeling}},
	}}
	var found *monitoringv1.ServiceMonitor
	for _, object := range (situation{spec: spec, optional: prometheus}).objects(t)["dcgm-exporter"] {
		if monitor, isMonitor := object.(*monitoringv1.ServiceMonitor); isMonitor {
			found = monitor
		}
	}
	if found == nil {
		t.Fatal("there is no ServiceMonitor")
	}
	if diff := cmp.Diff([]monitoringv1.RelabelConfig{want}, found.Spec.Endpoints[0].RelabelConfigs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
