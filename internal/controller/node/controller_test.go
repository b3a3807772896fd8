package node

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// partialManager is a manager that starts nothing. It keeps what is added, of which number fails is rejected.
type partialManager struct {
	manager.Manager
	indexing, adding error
	added            []manager.Runnable
	fails            int
}

func (p *partialManager) GetFieldIndexer() client.FieldIndexer { return p }

func (p *partialManager) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return p.indexing
}

func (p *partialManager) Add(runnable manager.Runnable) error {
	if p.added = append(p.added, runnable); len(p.added) != p.fails {
		return nil
	}
	return p.adding
}

// The controller is set up with its workers and back-off, or the part that fails is the error.
func TestSetUp(t *testing.T) {
	failure := errors.New("broken")
	for name, test := range map[string]struct {
		manager partialManager
		want    error
	}{
		"as it is":                       {},
		"pods cannot be indexed":         {partialManager{indexing: failure}, failure},
		"the fleet cannot be hydrated":   {partialManager{adding: failure, fails: 1}, failure},
		"the controller cannot be added": {partialManager{adding: failure, fails: 2}, failure},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
				Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
			})
			g.Expect(err).NotTo(HaveOccurred())
			test.manager.Manager = mgr
			r := New(Options{Fleet: fleet.New(), Clock: clock.RealClock{}, Timing: DefaultTiming()})
			if err = r.SetupWithManager(t.Context(), &test.manager); test.want != nil {
				g.Expect(err).To(MatchError(test.want))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(test.manager.added).To(HaveLen(2))
			added := reflect.ValueOf(test.manager.added[1]).Elem()
			g.Expect(added.FieldByName("MaxConcurrentReconciles").Interface()).To(Equal(workers))
			limiter, is := added.FieldByName("RateLimiter").Interface().(workqueue.TypedRateLimiter[reconcile.Request])
			g.Expect(is).To(BeTrue())
			g.Expect(limiter.When(requestFor("a"))).To(Equal(r.Timing.FirstRetry))
			for range 20 {
				limiter.When(requestFor("a"))
			}
			g.Expect(limiter.When(requestFor("a"))).To(Equal(r.Timing.LastRetry))
		})
	}
}

// A fleet is not hydrated if nodes cannot be listed.
func TestHydrateFails(t *testing.T) {
	e := newEnv(t)
	e.fails = map[string]error{"list": errors.New("refused")}
	e.Expect(e.reconciler.Hydrate(t.Context())).To(MatchError("refused"))
	e.Expect(e.fleet.View().Hydrated).To(BeFalse())
}

// Changes of labels by which the spec selects nodes, of pods, of health actions and of neighbours reconcile nodes.
func TestWhatIsReconciled(t *testing.T) {
	e := newEnv(t)
	r := e.reconciler
	e.Expect(r.selects("x")).To(BeFalse(), "there is no Basis")
	e.spec.DaemonSets = &v1.DaemonSetsSpec{NodeSelector: v1.Labels{"x": "y"}}
	e.publish()
	e.Expect(r.selects("x")).To(BeTrue())
	e.Expect(r.selects("z")).To(BeFalse())

	e.Expect(nodeOfPod(&corev1.Pod{})).To(BeNil())
	e.Expect(nodeOfPod(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}})).To(Equal([]reconcile.Request{requestFor("a")}))

	e.fleet.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "a"}})
	e.fleet.SetHealthActions(map[string]healthaction.Verdict{"b": {Text: "x"}})
	e.Expect(r.nodesWithOtherActions()).To(Equal([]reconcile.Request{requestFor("b")}))
	e.fleet.SetNeighbours(neighbour.OnNodes{"a": {{}}})
	e.Expect(r.nodesWithOtherNeighbours()).To(Equal([]reconcile.Request{requestFor("a")}))
}

// Events of a starting node whose pods are ready, as far as is known, wait the least.
func TestDebounceOfAStartingNode(t *testing.T) {
	entry := fleet.Entry{Facts: nodeinfo.Facts{Name: "a", HasGPU: true}, BasisVersion: 1, Latest: at(v1.StageDriver)}
	planned := func(of ...plan.OperandOnNode) *fleet.PlannedNode {
		return &fleet.PlannedNode{NodePlan: plan.NodePlan{Essential: of}}
	}
	plugin := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}, Status: readyPod().Status}
	const busy, soon, step = 101 * time.Millisecond, 100 * time.Millisecond, 800 * time.Millisecond
	for name, test := range map[string]struct {
		planned *fleet.PlannedNode
		object  client.Object
		fails   error
		want    time.Duration
	}{
		"without a plan":      {object: plugin, want: soon},
		"another object":      {object: &corev1.Node{}, want: busy},
		"a pod without node":  {object: readyPod(), want: busy},
		"a pod that is there": {planned: planned(plan.OperandOnNode{Operand: "driver"}), object: plugin, want: soon},
		"a pod that is not":   {planned: planned(plan.OperandOnNode{Operand: "x"}), object: plugin, want: step},
		"one that need not be": {
			planned: planned(plan.OperandOnNode{Operand: "x", Expectation: plan.OptedOut}), object: plugin, want: soon,
		},
		"one behind it": {
			planned: planned(plan.OperandOnNode{Operand: "y", Expectation: plan.OptedOut}, plan.OperandOnNode{Operand: "x"}),
			object:  plugin, want: step,
		},
		"pods that are not known": {
			planned: planned(plan.OperandOnNode{Operand: "x"}), object: plugin, fails: errors.New("refused"), want: soon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, of := newEnv(t), entry
			of.Planned = test.planned
			e.fleet.Set(&of)
			e.fails = map[string]error{"list": test.fails}
			e.Expect(e.reconciler.debounceDelay(test.object)).To(Equal(test.want))
		})
	}
}

// A node is published if its condition and its record show the report, and nothing waits.
func TestPublishedNodes(t *testing.T) {
	failed := assess.Assessment{NodeVerdict: readiness.NodeVerdict{Stage: v1.StageDriver, Verdict: readiness.Verdict{
		State: readiness.Failed, Reason: "R", Message: "m", Detail: "d",
	}}}
	lasts := failed
	lasts.DetailLasts = true
	type shown struct {
		condition corev1.NodeCondition
		record    string
		entry     *fleet.Entry
	}
	for name, test := range map[string]struct {
		assessment assess.Assessment
		change     func(*shown)
		want       bool
	}{
		"as it is":                   {assessment: failed, want: true},
		"with another detail":        {failed, func(s *shown) { s.condition.Message = failed.Cause("a") + ": e" }, true},
		"with a detail that lasts":   {lasts, func(s *shown) { s.condition.Message = failed.Cause("a") + ": e" }, false},
		"with the detail that lasts": {assessment: lasts, want: true},
		"with another message":       {failed, func(s *shown) { s.condition.Message = "x" }, false},
		"with another status":        {failed, func(s *shown) { s.condition.Status = "True" }, false},
		"with another reason":        {failed, func(s *shown) { s.condition.Reason = "x" }, false},
		"with another record":        {failed, func(s *shown) { s.record = "{}" }, false},
		"without a condition":        {failed, func(s *shown) { s.condition.Type = "x" }, false},
		"without an entry":           {failed, func(s *shown) { s.entry = nil }, false},
		"before it is assessed":      {failed, func(s *shown) { s.entry.BasisVersion = 0 }, false},
		"with a stage that waits":    {failed, func(s *shown) { s.entry.Writes.Stage = "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, node := New(Options{Fleet: fleet.New()}), &corev1.Node{}
			record := test.assessment.Record(assess.Record{})
			now := shown{
				condition: test.assessment.Condition("a"), record: *record.Annotation(),
				entry: &fleet.Entry{Facts: nodeinfo.Facts{Name: "a"}, BasisVersion: 1},
			}
			now.entry.Report.Assessment = test.assessment
			if test.change != nil {
				test.change(&now)
			}
			if now.entry != nil {
				r.Fleet.Set(now.entry)
			}
			node.Name, node.Annotations = "a", map[string]string{labels.ReportRecord: now.record}
			node.Status.Conditions = []corev1.NodeCondition{now.condition}
			NewWithT(t).Expect(r.isPublished(node)).To(Equal(test.want))
		})
	}
}

// Each delay of production is set.
func TestDefaultTiming(t *testing.T) {
	timing := reflect.ValueOf(DefaultTiming())
	for i := range timing.NumField() {
		if timing.Field(i).IsZero() {
			t.Errorf("%s is zero", timing.Type().Field(i).Name)
		}
	}
}
