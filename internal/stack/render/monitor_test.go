package render_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// nvidiasAlerts are the alerts of NVIDIA's operator, with how long each waits.
var nvidiasAlerts = map[string]time.Duration{
	"GPUOperatorReconciliationFailed":                            time.Hour,
	"GPUOperatorReconciliationFailedNfdLabelsMissing":            30 * time.Minute,
	"GPUOperatorOpenshiftDriverToolkitEnabledNfdTooOld":          30 * time.Minute,
	"GPUOperatorOpenshiftDriverToolkitEnabledImageStreamMissing": 30 * time.Minute,
	"GPUOperatorOpenshiftDriverToolkitEnabledImageStreamBroken":  30 * time.Minute,
	"GPUOperatorOpenshiftDriverToolkitEnabledImageTagsMissing":   30 * time.Minute,
	"GPUOperatorDriverAutoUpgradeFailures":                       30 * time.Minute,
	"GPUDriverUpgradeStuck":                                      30 * time.Minute,
	"GPUOperatorNodeDeploymentFailed":                            30 * time.Minute,
	"GPUOperatorNodeDeploymentDriverFailed":                      30 * time.Minute,
	"GPUOperatorNodeDeploymentToolkitFailed":                     30 * time.Minute,
	"GPUOperatorNodeDeploymentCudaFailed":                        30 * time.Minute,
}

// alerts returns all alerts, by name, and the PrometheusRule of each.
func alerts(t *testing.T) (all map[string]monitoringv1.Rule, of map[string]string) {
	t.Helper()
	spec := v1.ClusterPolicySpec{NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true)}}
	all, of = map[string]monitoringv1.Rule{}, map[string]string{}
	for _, objects := range (situation{spec: spec, optional: prometheus}).objects(t) {
		for _, object := range objects {
			rules, isRule := object.(*monitoringv1.PrometheusRule)
			if !isRule {
				continue
			}
			for _, group := range rules.Spec.Groups {
				for _, rule := range group.Rules {
					if rule.Alert != "" {
						all[rule.Alert], of[rule.Alert] = rule, rules.Name
					}
				}
			}
		}
	}
	return all, of
}

func TestAlertsOfNVIDIA(t *testing.T) {
	all, of := alerts(t)
	for name, want := range nvidiasAlerts {
		object := "nvidia-gpu-operator-metrics"
		if strings.HasPrefix(name, "GPUOperatorNode") {
			object = "nvidia-node-status-exporter-alerts"
		}
		rule, there := all[name]
		if !there || of[name] != object || rule.Labels["severity"] != "warning" {
			t.Errorf("%s: in PrometheusRule %q with labels %v", name, of[name], rule.Labels)
			continue
		}
		if after, err := time.ParseDuration(string(*rule.For)); err != nil || after != want {
			t.Errorf("%s: for %s, want %s", name, *rule.For, want)
		}
	}
}

// Every alert has a severity, a summary, and a runbook that exists.
func TestAlertsHaveRunbooks(t *testing.T) {
	const page = "docs/troubleshooting.md"
	text, err := os.ReadFile("../../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := alerts(t)
	for name, rule := range all {
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: labels %v, annotations %v", name, rule.Labels, rule.Annotations)
		}
		if want := "/blob/main/" + page + "#" + strings.ToLower(name); !strings.HasSuffix(
			rule.Annotations["runbook_url"],
			want,
		) {
			t.Errorf("%s: runbook %q, want one that ends with %q", name, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("%s has no section %s", page, name)
		}
	}
}

// An alert about a metric that nothing exports never fires. The tests of the programs compare these pages with what
// is exported.
func TestAlertsUseExportedMetrics(t *testing.T) {
	exported := map[string]bool{}
	for file, pattern := range map[string]string{
		"../../../docs/metrics.md":             "(?m)^\\| `([a-z_]+)` \\|",
		"../../onnode/export/exporter_test.go": `"(gpu_operator_[a-z_]+) (?:gauge|counter)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < 5 {
			t.Fatalf("%s has the names of %d metrics", file, len(found))
		}
		for _, match := range found {
			exported[match[1]] = true
		}
	}
	words := []string{"and", "absent", "sum", "by", "increase", "max"}
	notLabels, name := regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)|\[[^]]*\]`), regexp.MustCompile(`[a-z][a-z_]+`)
	all, _ := alerts(t)
	for alert, rule := range all {
		found := 0
		for _, metric := range name.FindAllString(notLabels.ReplaceAllString(rule.Expr.String(), ""), -1) {
			if slices.Contains(words, metric) {
				continue
			}
			if found++; !exported[metric] {
				t.Errorf("%s: nothing exports %s", alert, metric)
			}
		}
		if found == 0 {
			t.Errorf("%s: no metric in %s", alert, rule.Expr.String())
		}
	}
}

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

// A Prometheus without a token finds the operator's Service by its annotation, only if the metrics are plain HTTP.
func TestOperatorServiceIsScrapedByAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		endpoint operand.MetricsEndpoint
		want     string
	}{
		"plain":     {operand.MetricsEndpoint{Plain: true}, "true"},
		"HTTPS":     {operand.MetricsEndpoint{}, ""},
		"certified": {operand.MetricsEndpoint{Certified: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, object := range (situation{endpoint: test.endpoint}).objects(t)["operator-metrics"] {
				if service, isService := object.(*corev1.Service); isService {
					if got := service.Annotations["prometheus.io/scrape"]; got != test.want {
						t.Errorf("prometheus.io/scrape is %q, want %q", got, test.want)
					}
					return
				}
			}
			t.Error("there is no Service")
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
