package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// documentedMetric is a row of a table in docs/metrics.md.
var documentedMetric = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|")

// TestMetricsReportTheFleet: the metrics for four nodes, one of them broken, match the cluster; the writes match the
// API server's audit log, and every metric of docs/metrics.md exists.
func TestMetricsReportTheFleet(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 4, timing: simulator.DefaultTiming().Scale(0.1)})
	e.sim.Break("driver", brokenNode, simulator.CrashLoop)
	address := freeAddress(t)
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	e.create(e.samplePolicy())
	want := map[string]float64{
		`gpu_operator_nodes{stage="Validated",state="ready"}`:            3,
		`gpu_operator_nodes{stage="Driver",state="degraded"}`:            1,
		`gpu_operator_nodes{stage="Driver",state="progressing"}`:         0,
		`gpu_operator_nodes_excluded`:                                    0,
		`gpu_operator_gpu_nodes_total`:                                   4,
		`gpu_operator_operand_nodes_desired{operand="driver"}`:           4,
		`gpu_operator_operand_nodes_ready{operand="driver"}`:             3,
		`gpu_operator_condition{type="Degraded"}`:                        1,
		`gpu_operator_condition{type="Ready"}`:                           0,
		`gpu_operator_reconciliation_status`:                             0,
		`gpu_operator_reconciliation_has_nfd_labels`:                     1,
		`gpu_operator_node_join_seconds_count{stage="Discovered"}`:       4,
		`gpu_operator_node_join_seconds_count{stage="Validated"}`:        3,
		`gpu_operator_api_writes_total{resource="events",verb="create"}`: 2,
	}
	e.Eventually(func(g Gomega) {
		samples := e.samples(address)
		for name, value := range want {
			g.Expect(samples).To(HaveKeyWithValue(name, value), name)
		}
	}).WithPolling(200 * time.Millisecond).Should(Succeed())

	e.settled()
	audited := map[string]float64{}
	for _, call := range e.operatorCalls(0).Writes() {
		name := strings.TrimSuffix(call.Resource+"/"+call.Subresource, "/")
		audited[fmt.Sprintf(`gpu_operator_api_writes_total{resource=%q,verb=%q}`, name, call.Verb)]++
	}
	samples := e.samples(address)
	for name, count := range audited {
		e.Expect(samples).To(HaveKeyWithValue(name, count), "as in the audit log: %s", name)
	}
	e.Expect(samples[`gpu_operator_reconciliation_total`]).To(BeNumerically(">=", 3))
	e.Expect(samples[`gpu_operator_node_join_seconds_sum{stage="Validated"}`]).To(And(BeNumerically(">", 0.5),
		BeNumerically("<", 3*30)))

	text, err := os.ReadFile(filepath.Join(repo, "docs/metrics.md"))
	e.Expect(err).NotTo(HaveOccurred())
	families := map[string]bool{}
	for name := range samples {
		family, _, _ := strings.Cut(name, "{")
		families[strings.TrimSuffix(family, "_count")] = true
	}
	for _, row := range documentedMetric.FindAllStringSubmatch(string(text), -1) {
		if row[1] != "gpu_operator_events_dropped_total" { // There was none.
			e.Expect(families).To(HaveKey(row[1]))
		}
	}
}

// samples returns the metrics of the operator, by name and labels.
func (e *env) samples(address string) map[string]float64 {
	e.t.Helper()
	answer, err := scrape(http.DefaultClient, "http://"+address, "")
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(answer.Code).To(Equal(http.StatusOK))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(answer.Body))
	e.Expect(err).NotTo(HaveOccurred())
	samples := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			if histogram := metric.GetHistogram(); histogram != nil {
				samples[name+"_count"+suffix], samples[name+"_sum"+
					suffix] = float64(histogram.GetSampleCount()), histogram.GetSampleSum()
				continue
			}
			samples[name+suffix] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return samples
}
