package servicemonitor_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/servicemonitor"
)

func TestMonitorNeedsTheSpecAndTheKind(t *testing.T) {
	both := map[operand.OptionalKind]bool{operand.ServiceMonitor: true, operand.PrometheusRule: true}
	type want struct{ monitor, rule bool }
	tests := map[string]struct {
		kinds   map[operand.OptionalKind]bool
		enabled bool
		want    want
	}{
		"enabled":                             {kinds: both, enabled: true, want: want{true, true}},
		"disabled":                            {kinds: both},
		"enabled, and no Prometheus operator": {enabled: true},
		"enabled, and no kind for rules": {
			kinds: map[operand.OptionalKind]bool{operand.ServiceMonitor: true}, enabled: true, want: want{monitor: true},
		},
		"enabled, and no kind for monitors": {
			kinds:   map[operand.OptionalKind]bool{operand.PrometheusRule: true},
			enabled: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &v1.ServiceMonitorSpec{Enabled: &test.enabled, HonorLabels: new(false)}
			got := servicemonitor.Of(operand.Input{Optional: test.kinds}, "app", spec)
			if (want{got.ServiceMonitor, got.PrometheusRule}) != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestMonitorCarriesTheSpec(t *testing.T) {
	spec := &v1.ServiceMonitorSpec{
		Enabled: new(true), Interval: "15s", ScrapeTimeout: "10s", HonorLabels: new(true),
		AdditionalLabels: v1.Labels{"release": "prometheus"},
		Relabelings:      []v1.RelabelConfig{{TargetLabel: "cluster", Replacement: new("a")}},
	}
	want := operand.Monitor{
		Labels:   map[string]string{"app": "nvidia-dcgm-exporter", "release": "prometheus"},
		Interval: "15s", ScrapeTimeout: "10s", HonorLabels: true, Relabelings: spec.Relabelings,
	}
	if diff := cmp.Diff(want, servicemonitor.Of(operand.Input{}, "nvidia-dcgm-exporter", spec)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(spec.AdditionalLabels) != 1 {
		t.Errorf("the labels of the spec became %v", spec.AdditionalLabels)
	}
}
