package install

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// rulesWith returns the PrometheusRules of the chart with values, by name.
func rulesWith(t *testing.T, assignments string) map[string]*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	text, err := render(t, append(set("operator.image="+placeholder+" "+assignments), "--no-hooks")...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		if object.GetKind() == "PrometheusRule" {
			found[object.GetName()] = object
		}
	}
	return found
}

// releasePage is the part of a link that names a release.
var releasePage = regexp.MustCompile(`/blob/v[^/]+/`)

// withoutRelease returns the spec of a rule in JSON, with links to the main branch in place of a release.
func withoutRelease(g Gomega, rule *unstructured.Unstructured) []byte {
	spec, err := json.Marshal(rule.Object["spec"])
	g.Expect(err).NotTo(HaveOccurred())
	return releasePage.ReplaceAll(spec, []byte("/blob/main/"))
}

// By default the chart has the same rules about GPUs as kustomize, once they are turned on.
func TestRulesOfTheChart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	g.Expect(rulesWith(t, "monitoring.rules.aliases=true")).To(BeEmpty(), "they need a kind that may be absent")
	chart := rulesWith(t, "monitoring.rules.enabled=true monitoring.rules.aliases=true monitoring.rules.labels.release=k "+
		"monitoring.rules.disabledAlerts={}")
	g.Expect(chart).To(HaveLen(4))
	for _, folder := range []string{"config/monitoring", "config/monitoring/aliases"} {
		built, err := config.Build(filepath.Join(repo, folder))
		g.Expect(err).NotTo(HaveOccurred())
		for _, want := range built {
			got := chart[want.GetName()]
			g.Expect(got).NotTo(BeNil(), want.GetName())
			g.Expect(got.GetNamespace()).To(Equal(namespace))
			g.Expect(got.GetLabels()).To(HaveKeyWithValue("release", "k"))
			g.Expect(withoutRelease(g, got)).To(MatchJSON(withoutRelease(g, want)), want.GetName())
		}
	}
}

// Values change thresholds, add prices and labels, and leave alerts out; wrong ones are refused with what to do.
func TestValuesOfTheRules(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	on := "monitoring.rules.enabled=true "
	rules := rulesWith(t, on+"monitoring.rules.memoryPercent=90 monitoring.rules.temperatureCelsius=85 "+
		"monitoring.rules.idlePercent=10 monitoring.rules.pricePerHour=2.5 monitoring.rules.pricePerHourByModel.H100=4 "+
		"monitoring.rules.disabledAlerts={GPUUnhealthy,GPUWatched} monitoring.rules.alertLabels.team=gpu")
	g.Expect(rules).To(HaveLen(3))
	parameters := fmt.Sprint(rules["gpu-operator-parameters"].Object["spec"])
	for _, want := range []string{
		"vector(0.9)", "vector(85)", "vector(0.1)", "expr:vector(2.5) record:gpu_rules:price_per_hour]",
		"expr:vector(4) labels:map[modelName:H100]",
	} {
		g.Expect(parameters).To(ContainSubstring(want))
	}
	alerts := fmt.Sprint(rules["gpu-operator-alerts"].Object["spec"])
	g.Expect(alerts).NotTo(ContainSubstring("GPUUnhealthy"))
	g.Expect(alerts).NotTo(ContainSubstring("gpu-health-agent"), "a group without rules is left out")
	g.Expect(strings.Count(alerts, "team:gpu")).To(Equal(strings.Count(alerts, "alert:")))
	g.Expect(alerts).To(ContainSubstring("severity:critical team:gpu"))

	for value, message := range map[string]string{
		"monitoring.rules.disabledAlerts={GPUTypo}":  `there is no alert "GPUTypo"`,
		"monitoring.rules.pricePerHour=2,50€":        "it must be a number",
		"monitoring.rules.pricePerHourByModel.A=abc": "the price of A",
	} {
		_, err := render(t, set("operator.image="+placeholder+" "+on+strings.ReplaceAll(value, "2,50", `2\,50`))...)
		g.Expect(err).To(MatchError(ContainSubstring(message)), value)
	}
}
