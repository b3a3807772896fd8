package metrics_test

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

var startTime = time.Unix(1_000_000, 0)

// fixture is a Meter in a registry.
type fixture struct {
	*WithT
	clock    *clocktesting.FakePassiveClock
	meter    *metrics.Meter
	registry *prometheus.Registry
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		WithT:    NewWithT(t),
		clock:    clocktesting.NewFakePassiveClock(startTime),
		registry: prometheus.NewPedanticRegistry(),
	}
	f.meter = metrics.New(f.clock)
	f.Expect(f.registry.Register(f.meter)).To(Succeed())
	return f
}

// expectMetrics compares the metrics of these names with those that Prometheus would scrape.
func (f *fixture) expectMetrics(text string, names ...string) {
	for i := range names {
		names[i] = "gpu_operator_" + names[i]
	}
	var plain strings.Builder
	for line := range strings.Lines(text) {
		plain.WriteString(strings.TrimLeft(line, "\t"))
	}
	f.Expect(testutil.GatherAndCompare(f.registry, strings.NewReader(plain.String()), names...)).To(Succeed())
}

// policyStatus is the status of a degraded policy with 12 nodes.
func policyStatus(state v1.State) *v1.ClusterPolicyStatus {
	return &v1.ClusterPolicyStatus{
		State:       state,
		NodeSummary: &v1.NodeSummary{Total: 12, Excluded: 2, Upgrading: 3, GPUs: &v1.NodeGPUs{Total: 80, Usable: 77}},
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse},
			{Type: "Degraded", Status: metav1.ConditionTrue},
		},
		Operands: []v1.OperandStatus{{Name: "driver", Desired: 12, Ready: 11}, {Name: "dcgm"}},
	}
}

func TestObservePass(t *testing.T) {
	f := newFixture(t)
	f.Expect(testutil.GatherAndCount(f.registry, "gpu_operator_gpu_nodes_total")).To(BeZero(), "before the first pass")
	f.expectMetrics(`
		# HELP gpu_operator_build_info 1, with what the operator was built from as labels.
		# TYPE gpu_operator_build_info gauge
		gpu_operator_build_info{goversion="`+runtime.Version()+`",revision="unknown",version="dev"} 1
	`, "build_info")
	f.meter.ObservePass(metrics.PassStats{
		Status: policyStatus(v1.StateNotReady), Discovered: true, AutoUpgrade: true,
		Upgrades:  metrics.Upgrades{Pending: 3, InProgress: 4, Done: 5, Failed: 6, Available: 2, Held: 1},
		MIGFailed: 7,
		Nodes: map[metrics.StageState]int{
			{Stage: v1.StageValidated, State: metrics.Ready}:     10,
			{Stage: v1.StageDriver, State: metrics.Degraded}:     1,
			{Stage: v1.StageToolkit, State: metrics.Progressing}: 1,
		},
	})
	f.expectMetrics(`
		# HELP gpu_operator_condition 1 if the condition of the active ClusterPolicy is True.
		# TYPE gpu_operator_condition gauge
		gpu_operator_condition{type="AuxiliaryReady"} 0
		gpu_operator_condition{type="Degraded"} 1
		gpu_operator_condition{type="Progressing"} 0
		gpu_operator_condition{type="Ready"} 0
		# HELP gpu_operator_gpu_nodes_total GPU nodes, including excluded ones.
		# TYPE gpu_operator_gpu_nodes_total gauge
		gpu_operator_gpu_nodes_total 14
		# HELP gpu_operator_gpus GPUs of the nodes that advertise any: usable, or lost if no pod can get them.
		# TYPE gpu_operator_gpus gauge
		gpu_operator_gpus{state="lost"} 3
		gpu_operator_gpus{state="usable"} 77
		# HELP gpu_operator_nodes GPU nodes by the first stage not reached, and state; ready nodes are at Validated.
		# TYPE gpu_operator_nodes gauge
		gpu_operator_nodes{stage="Allocatable",state="degraded"} 0
		gpu_operator_nodes{stage="Allocatable",state="progressing"} 0
		gpu_operator_nodes{stage="DevicePlugin",state="degraded"} 0
		gpu_operator_nodes{stage="DevicePlugin",state="progressing"} 0
		gpu_operator_nodes{stage="Discovered",state="degraded"} 0
		gpu_operator_nodes{stage="Discovered",state="progressing"} 0
		gpu_operator_nodes{stage="Driver",state="degraded"} 1
		gpu_operator_nodes{stage="Driver",state="progressing"} 0
		gpu_operator_nodes{stage="Toolkit",state="degraded"} 0
		gpu_operator_nodes{stage="Toolkit",state="progressing"} 1
		gpu_operator_nodes{stage="Validated",state="degraded"} 0
		gpu_operator_nodes{stage="Validated",state="progressing"} 0
		gpu_operator_nodes{stage="Validated",state="ready"} 10
		# HELP gpu_operator_operand_nodes_ready Nodes on which the operand is ready, of those that need it.
		# TYPE gpu_operator_operand_nodes_ready gauge
		gpu_operator_operand_nodes_ready{operand="dcgm"} 0
		gpu_operator_operand_nodes_ready{operand="driver"} 11
		`, "condition", "gpu_nodes_total", "gpus", "nodes", "operand_nodes_ready")
	for name, want := range map[string]float64{
		"nodes_excluded":                   2,
		"nodes_upgrades_pending":           3,
		"nodes_upgrades_available":         2,
		"nodes_upgrades_in_progress":       4,
		"nodes_upgrades_done":              5,
		"nodes_upgrades_failed":            6,
		"nodes_upgrades_held":              1,
		"nodes_mig_failed":                 7,
		"driver_auto_upgrade_enabled":      1,
		"reconciliation_has_nfd_labels":    1,
		"reconciliation_total":             1,
		"reconciliation_failed_total":      0,
		"openshift_driver_toolkit_enabled": 0,
	} {
		f.Expect(f.value(name)).To(Equal(want), name)
	}
}

func TestDriverToolkit(t *testing.T) {
	type values struct{ enabled, nfdTooOld, missing, broken, tags float64 }
	for name, test := range map[string]struct {
		toolkit metrics.DriverToolkit
		want    values
	}{
		"not needed":      {},
		"works":           {metrics.DriverToolkit{Needed: true}, values{enabled: 1}},
		"unknown release": {metrics.DriverToolkit{Needed: true, ReleaseUnknown: true}, values{enabled: -1, nfdTooOld: 1}},
		"no ImageStream":  {metrics.DriverToolkit{Needed: true, StreamMissing: true}, values{enabled: -1, missing: 1}},
		"broken":          {metrics.DriverToolkit{Needed: true, StreamBroken: true}, values{enabled: 1, broken: 1}},
		"no tag":          {metrics.DriverToolkit{Needed: true, TagMissing: true}, values{enabled: 1, tags: 1}},
		"not read":        {metrics.DriverToolkit{Needed: true, Unread: true}, values{enabled: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateReady), DriverToolkit: test.toolkit})
			value := func(name string) float64 { return f.value("openshift_driver_toolkit_" + name) }
			f.Expect(values{
				value("enabled"), value("nfd_too_old"), value("imagestream_missing"), value("imagestream_broken"),
				value("rhcos_tags_missing"),
			}).To(Equal(test.want))
		})
	}
}

// text returns a metric as Prometheus scrapes it.
func (f *fixture) text(name string) string {
	text, err := testutil.CollectAndFormat(f.meter, expfmt.TypeTextPlain, "gpu_operator_"+name)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// value of a metric without labels.
func (f *fixture) value(name string) float64 {
	families, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "gpu_operator_"+name {
			metric := family.GetMetric()[0]
			return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	f.Expect(families).To(BeNil(), "there is no %s", name)
	return 0
}

func TestReconciliationStatus(t *testing.T) {
	for name, test := range map[string]struct {
		pass metrics.PassStats
		want float64
	}{
		"ready":     {metrics.PassStats{Status: policyStatus(v1.StateReady)}, 1},
		"not ready": {metrics.PassStats{Status: policyStatus(v1.StateNotReady)}, 0},
		"no policy": {metrics.PassStats{}, -1},
		"a failure": {metrics.PassStats{Status: policyStatus(v1.StateReady), Failed: true}, -2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.meter.ObservePass(test.pass)
			f.Expect(f.value("reconciliation_status")).To(Equal(test.want))
		})
	}
}

// There are no passes while all is ready and nothing changes.
func TestLastSuccessAdvancesWithoutPasses(t *testing.T) {
	f := newFixture(t)
	last := func() time.Duration {
		return time.Duration(f.value("reconciliation_last_success_ts_seconds")-float64(startTime.Unix())) * time.Second
	}
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateNotReady)})
	f.Expect(f.value("reconciliation_last_success_ts_seconds")).To(BeZero(), "never")
	f.clock.SetTime(startTime.Add(time.Minute))
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateReady)})
	f.Expect(last()).To(Equal(time.Minute))
	f.clock.SetTime(startTime.Add(time.Hour))
	f.Expect(last()).To(Equal(time.Hour))
	f.clock.SetTime(startTime.Add(2 * time.Hour))
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateNotReady)})
	f.clock.SetTime(startTime.Add(3 * time.Hour))
	f.Expect(last()).To(Equal(2*time.Hour), "until the pass that found a failure")
}

func TestFailedPassKeepsNodeCounts(t *testing.T) {
	f := newFixture(t)
	ready := metrics.StageState{Stage: v1.StageValidated, State: metrics.Ready}
	f.meter.ObservePass(metrics.PassStats{
		Status: policyStatus(v1.StateReady), Nodes: map[metrics.StageState]int{ready: 7},
	})
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateReady), Failed: true})
	f.Expect(f.text("nodes")).To(ContainSubstring(`{stage="Validated",state="ready"} 7`))
	f.Expect(f.value("reconciliation_failed_total")).To(Equal(1.0))
	f.Expect(f.value("frozen")).To(BeZero())
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateReady), Frozen: true})
	f.Expect(f.text("nodes")).To(ContainSubstring(`{stage="Validated",state="ready"} 0`), "a pass that has counted none")
	f.Expect(f.value("frozen")).To(Equal(1.0))
}

func TestObserveJoin(t *testing.T) {
	f := newFixture(t)
	f.meter.ObserveJoin(v1.StageDriver, 20*time.Second)
	f.meter.ObserveJoin(v1.StageDriver, 90*time.Second)
	f.meter.ObserveJoin(v1.StageToolkit, time.Second)
	for stage, want := range map[string][2]string{"Driver": {"110", "2"}, "Toolkit": {"1", "1"}} {
		f.Expect(f.text("node_join_seconds")).To(And(
			ContainSubstring(`node_join_seconds_sum{stage="`+stage+`"} `+want[0]+"\n"),
			ContainSubstring(`node_join_seconds_count{stage="`+stage+`"} `+want[1]+"\n")), stage)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestWritesAreCountedByResource(t *testing.T) {
	f := newFixture(t)
	unreachable := errors.New("unreachable")
	counted := f.meter.CountWrites(transport(func(*http.Request) (*http.Response, error) { return nil, unreachable }))
	for _, call := range []string{
		"GET /api/v1/nodes", "PATCH /api/v1/nodes/a", "PATCH /api/v1/nodes/b", "PATCH /api/v1/nodes/a/status",
		"PATCH /apis/apps/v1/namespaces/gpu-operator/daemonsets/x",
		"DELETE /apis/apps/v1/namespaces/gpu-operator/daemonsets/x",
		"POST /api/v1/namespaces/default/events",
		"PUT /apis/nvidia.com/v1/clusterpolicies/cp/status",
		"PATCH /api/v1/namespaces/gpu-operator",
		"PUT /apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/x",
		"POST /apis/authentication.k8s.io/v1/tokenreviews",
		"POST /healthz",
	} {
		method, path, _ := strings.Cut(call, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "https://example.com"+path, nil)
		f.Expect(err).NotTo(HaveOccurred())
		response, err := counted.RoundTrip(request)
		f.Expect(err).To(MatchError(unreachable))
		f.Expect(response).To(BeNil())
	}
	f.expectMetrics(`
		# HELP gpu_operator_api_writes_total Write requests to the API server, including failed ones.
		# TYPE gpu_operator_api_writes_total counter
		gpu_operator_api_writes_total{resource="clusterpolicies/status",verb="update"} 1
		gpu_operator_api_writes_total{resource="daemonsets",verb="delete"} 1
		gpu_operator_api_writes_total{resource="daemonsets",verb="patch"} 1
		gpu_operator_api_writes_total{resource="events",verb="create"} 1
		gpu_operator_api_writes_total{resource="leases",verb="update"} 1
		gpu_operator_api_writes_total{resource="namespaces",verb="patch"} 1
		gpu_operator_api_writes_total{resource="nodes",verb="patch"} 2
		gpu_operator_api_writes_total{resource="nodes/status",verb="patch"} 1
		gpu_operator_api_writes_total{resource="other",verb="create"} 1
		gpu_operator_api_writes_total{resource="tokenreviews",verb="create"} 1
		`, "api_writes_total")
}

// row is one of the table of names in docs/metrics.md.
var row = regexp.MustCompile("(?m)^\\| `(gpu_operator_[a-z_]+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|")

// TestTheDocumentNamesAllMetrics compares docs/metrics.md with the registry: names, types and labels.
func TestTheDocumentNamesAllMetrics(t *testing.T) {
	f := newFixture(t)
	text, err := os.ReadFile("../../../docs/metrics.md")
	f.Expect(err).NotTo(HaveOccurred())
	documented := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = match[2] + " " + strings.NewReplacer("`", "", " ", "").Replace(match[3])
	}
	f.meter.ObservePass(metrics.PassStats{Status: policyStatus(v1.StateReady)})
	f.meter.ObserveJoin(v1.StageDriver, time.Minute)
	f.meter.ObserveUndecodable("ClusterPolicy", 1)
	f.meter.CountDroppedEvent("Node")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/api/v1/nodes", nil)
	f.Expect(err).NotTo(HaveOccurred())
	noResponse := transport(func(*http.Request) (*http.Response, error) { return nil, nil })
	_, _ = f.meter.CountWrites(noResponse).RoundTrip(request)
	families, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	served := map[string]string{}
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		served[family.GetName()] = strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ",")
	}
	f.Expect(documented).To(Equal(served))
}

// A larger cluster does not have more series.
func TestSeriesDoNotGrowWithTheCluster(t *testing.T) {
	series := func(nodes int) int {
		f := newFixture(t)
		status := policyStatus(v1.StateReady)
		counts := map[metrics.StageState]int{}
		for i := range nodes {
			name := string(rune('a'+i%26)) + strings.Repeat("x", i)
			status.Nodes = append(status.Nodes, v1.NodeStatus{Name: name})
			counts[metrics.StageState{Stage: v1.StageDriver, State: metrics.Progressing}]++
			f.meter.ObserveJoin(v1.StageValidated, time.Duration(i)*time.Second)
		}
		f.meter.ObservePass(metrics.PassStats{Status: status, Nodes: counts})
		count, err := testutil.GatherAndCount(f.registry)
		f.Expect(err).NotTo(HaveOccurred())
		return count
	}
	NewWithT(t).Expect(series(500)).To(Equal(series(1)))
}
