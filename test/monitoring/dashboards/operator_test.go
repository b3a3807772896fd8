package dashboards

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// simulation is an operator's registry while a cluster of 24 nodes changes: eight nodes join, one of which fails, and a
// driver upgrade begins.
type simulation struct {
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	meter    *metrics.Meter
	registry *prometheus.Registry
	writes   http.RoundTripper
	work     func(n int)
	// answers has what the registry has served, by time, as several recordings read it.
	answers map[time.Time]string
	reached map[int]int
}

const joining, others = 8, 16

// newSimulation runs the operator for a time.
func newSimulation(t *testing.T, lasting time.Duration) *simulation {
	t.Helper()
	s := &simulation{
		t: t, clock: clocktesting.NewFakePassiveClock(begin), registry: prometheus.NewPedanticRegistry(),
		answers: map[time.Time]string{}, reached: map[int]int{},
	}
	s.meter = metrics.New(s.clock)
	s.registry.MustRegister(s.meter)
	s.writes = s.meter.CountWrites(answering{})
	s.work = controllers(t)
	for at := begin; !at.After(begin.Add(lasting)); at = at.Add(scrapeEvery) {
		s.clock.SetTime(at)
		s.step(int(at.Sub(begin) / time.Minute))
		s.answers[at] = s.gather()
	}
	return s
}

func (s *simulation) at(t time.Time) string { return s.answers[t] }

// answering answers each request at once.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) { return &http.Response{}, nil }

func (s *simulation) write(method, path string) {
	request, err := http.NewRequestWithContext(context.Background(), method, "https://example.com"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.writes.RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
}

// step is what happens in one minute.
func (s *simulation) step(minute int) {
	s.write(http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/x")
	nodes, moved := s.nodes(minute)
	for range moved {
		s.write(http.MethodPatch, "/api/v1/nodes/a")
		s.write(http.MethodPatch, "/api/v1/nodes/a/status")
		s.write(http.MethodPut, "/apis/nvidia.com/v1/clusterpolicies/cluster-policy/status")
	}
	upgrades := upgradesAt(minute)
	if upgrades.InProgress > 0 && minute%4 == 0 {
		s.write(http.MethodPatch, "/api/v1/nodes/a")
		s.write(http.MethodDelete, "/api/v1/namespaces/gpu-operator/pods/driver")
		moved++
	}
	if minute%90 == 20 {
		s.meter.CountDroppedEvent("Node")
	}
	if moved > 0 || minute == 0 {
		s.pass(minute, nodes, upgrades)
	}
	s.work(moved)
}

// stageMinutes are the minutes after which a joining node reaches each stage.
var stageMinutes = []int{0, 6, 7, 8, 8, 10}

// nodes returns the nodes by stage, and how many have moved.
func (s *simulation) nodes(minute int) (map[metrics.StageState]int, int) {
	stages := v1.Stages()
	counts := map[metrics.StageState]int{{Stage: v1.StageValidated, State: metrics.Ready}: others}
	moved := 0
	for node := range joining {
		since := minute - 30 - 25*node
		if since < 0 {
			continue
		}
		slow := 1 + node%3
		for s.reached[node] < len(stages) && since >= stageMinutes[s.reached[node]]*slow {
			if node == 5 && s.reached[node] == 1 {
				break
			}
			stage := stages[s.reached[node]]
			s.meter.ObserveJoin(stage, time.Duration(stageMinutes[s.reached[node]]*slow)*time.Minute+12*time.Second)
			s.reached[node]++
			moved++
		}
		switch {
		case s.reached[node] == len(stages):
			counts[metrics.StageState{Stage: v1.StageValidated, State: metrics.Ready}]++
		case since > 30 && node == 5:
			counts[metrics.StageState{Stage: stages[s.reached[node]], State: metrics.Degraded}]++
		default:
			counts[metrics.StageState{Stage: stages[s.reached[node]], State: metrics.Progressing}]++
		}
	}
	return counts, moved
}

// upgradesAt returns the driver upgrades: two nodes at a time from minute 240 on, one of which does not go on.
func upgradesAt(minute int) metrics.Upgrades {
	if minute < 240 {
		return metrics.Upgrades{Done: others}
	}
	done := min((minute-240)/12*2, others-3)
	upgrades := metrics.Upgrades{Done: done, InProgress: 2, Pending: others - done - 2, Available: max(0, others-done-4)}
	if minute > 300 {
		upgrades.Held, upgrades.Failed, upgrades.InProgress = 1, 1, 1
	}
	return upgrades
}

func (s *simulation) pass(minute int, nodes map[metrics.StageState]int, upgrades metrics.Upgrades) {
	all, ready := 0, nodes[metrics.StageState{Stage: v1.StageValidated, State: metrics.Ready}]
	for _, n := range nodes {
		all += n
	}
	status := &v1.ClusterPolicyStatus{State: v1.StateReady}
	set := func(condition string, is bool) {
		value := metav1.ConditionFalse
		if is {
			value = metav1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, metav1.Condition{Type: condition, Status: value})
	}
	if all > ready {
		status.State = v1.StateNotReady
	}
	set(v1.ConditionReady, all == ready)
	set(v1.ConditionAuxiliaryReady, true)
	set(v1.ConditionProgressing, all > ready || upgrades.InProgress > 0)
	set(v1.ConditionDegraded, minute > 185)
	lost := map[bool]int32{true: 1}[minute > 210]
	status.NodeSummary = &v1.NodeSummary{
		Total: int32(all), Excluded: 1, GPUs: &v1.NodeGPUs{Total: int32(8 * ready), Usable: int32(8*ready) - lost},
	}
	for _, operand := range []string{
		"driver", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "operator-validator",
		"mig-manager", "health-agent",
	} {
		have := ready
		if operand == "driver" || operand == "dcgm-exporter" {
			have = all - map[bool]int{true: 1}[minute > 185]
		}
		status.Operands = append(status.Operands, v1.OperandStatus{Name: operand, Desired: int32(all), Ready: int32(have)})
	}
	actions := metrics.HealthActions{Done: map[v1.HealthAction]int{}, Held: map[healthaction.Hold]int{}}
	if lost > 0 {
		actions.Done[v1.HealthActionTaint] = 1
		actions.Held[healthaction.Holds()[0]] = 1
	}
	s.meter.ObservePass(metrics.PassStats{
		Status: status, Nodes: nodes, Discovered: true, AutoUpgrade: true, Upgrades: upgrades, HealthActions: actions,
		Failed: minute == 127 || minute == 128,
	})
}

// gather returns what the operator serves, in the text format.
func (s *simulation) gather() string {
	var text bytes.Buffer
	for _, registry := range []prometheus.Gatherer{s.registry, ctrlmetrics.Registry} {
		families, err := registry.Gather()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return text.String()
}

// controllers runs two controllers and a client of an API server that answers each request, so that controller-runtime
// and client-go have metrics. The function that it returns makes them work n times.
func controllers(t *testing.T) func(n int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, clientgoscheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var triggers []func()
	for _, name := range []string{"clusterpolicy", "node"} {
		triggers = append(triggers, controllerOf(t, name, client))
	}
	return func(n int) {
		for range n {
			for _, trigger := range triggers {
				trigger()
			}
		}
	}
}

// controllerOf runs a controller that sends one request per reconcile, and returns what makes it reconcile once.
func controllerOf(t *testing.T, name string, client rest.Interface) func() {
	t.Helper()
	done, events := make(chan struct{}), make(chan event.GenericEvent)
	skip := true
	c, err := controller.NewUnmanaged(name, controller.Options{
		SkipNameValidation: &skip,
		Reconciler: reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			defer func() { done <- struct{}{} }()
			patch := client.Patch(types.MergePatchType).AbsPath("/api/v1/nodes/a").Body([]byte(`{}`))
			return reconcile.Result{}, patch.Do(ctx).Error()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.Channel(events, &handler.EnqueueRequestForObject{})); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Start(t.Context()) }()
	return func() {
		events <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the controller does not reconcile")
		}
	}
}
