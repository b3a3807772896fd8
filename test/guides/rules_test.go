package guides

import (
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// rulesAreValid: the API server accepts every PrometheusRule with the definition of the Prometheus operator: those of
// kustomize, of the chart with each of its values, and those that the operator creates.
func rulesAreValid(e *env) {
	e.newNamespace("rules")
	objects := map[string][]*unstructured.Unstructured{}
	for _, folder := range []string{"config/monitoring", "config/monitoring/aliases"} {
		built, err := config.Build(filepath.Join(repo, folder))
		e.Expect(err).NotTo(HaveOccurred())
		objects[folder] = built
	}
	text, err := packaged.Helm(e.t.Context(), repo, e.t.TempDir(), nil, append([]string{
		"template", "gpu-operator", filepath.Join(repo, packaged.Chart), "--namespace", "rules",
	}, packaged.Sets("operator.image=example.com/gpu-operator:v1 monitoring.rules.enabled=true "+
		"monitoring.rules.aliases=true monitoring.rules.labels.release=prometheus "+
		"monitoring.rules.alertLabels.team=gpu monitoring.rules.memoryPercent=90 "+
		"monitoring.rules.temperatureCelsius=85 monitoring.rules.idlePercent=10 monitoring.rules.pricePerHour=2.5 "+
		"monitoring.rules.pricePerHourByModel.H100=4 monitoring.rules.disabledAlerts={GPUWatched}")...)...)
	e.Expect(err).NotTo(HaveOccurred())
	objects["chart"], err = packaged.Decode(text)
	e.Expect(err).NotTo(HaveOccurred())
	rendered, err := filepath.Glob(filepath.Join(repo, "internal/stack/render/testdata/*metrics*.golden.yaml"))
	e.Expect(err).NotTo(HaveOccurred())
	for _, file := range rendered {
		text, err := os.ReadFile(file)
		e.Expect(err).NotTo(HaveOccurred())
		objects[file], err = packaged.Decode(string(text))
		e.Expect(err).NotTo(HaveOccurred())
	}
	counts := map[string]int{}
	for from, list := range objects {
		for _, object := range list {
			if object.GetKind() == "PrometheusRule" {
				object.SetNamespace("rules")
				object.SetOwnerReferences(nil)
				e.Expect(e.validated(object)).To(Succeed(), "%s: %s", from, object.GetName())
				counts[object.GetName()]++
			}
		}
	}
	e.Expect(counts).To(And(HaveKeyWithValue("gpu-operator-alerts", 2), HaveKeyWithValue("gpu-operator-recording", 2),
		HaveKeyWithValue("gpu-operator-parameters", 2), HaveKeyWithValue("gpu-operator-aliases", 2),
		HaveKey("nvidia-gpu-operator-metrics"), HaveKey("nvidia-node-status-exporter-alerts")))
	e.t.Logf("PrometheusRules accepted by the API server: %v", counts)
	e.refusesABadRule(objects["config/monitoring"])
}

// refusesABadRule expects the definition to refuse a time that Prometheus cannot read.
func (e *env) refusesABadRule(objects []*unstructured.Unstructured) {
	e.t.Helper()
	for _, object := range objects {
		if object.GetName() == "gpu-operator-alerts" {
			groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
			e.Expect(err).NotTo(HaveOccurred())
			first, isMap := groups[0].(map[string]any)
			e.Expect(isMap).To(BeTrue())
			first["interval"] = "1 minute"
			e.Expect(unstructured.SetNestedSlice(object.Object, groups, "spec", "groups")).To(Succeed())
			e.Expect(e.validated(object)).To(MatchError(ContainSubstring("spec.groups[0].interval")))
		}
	}
}
