package healthaction

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// newUnit returns a pass that taints for a reset, on a fake API server.
func newUnit(calls interceptor.Funcs, objects ...client.Object) *scope {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	r := New(Options{
		Client: fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(calls).Build(),
		Fleet:  fleet.New(), Clock: clock, Timing: DefaultTiming(),
	})
	r.Fleet.Hydrate(nil)
	r.Fleet.Publish(fleet.Basis{
		Policy: &v1.ClusterPolicy{}, Decisions: decide(&v1.HealthActionsSpec{Reset: v1.HealthActionTaint}),
	}, clock.Now())
	s := r.newScope()
	s.observed = map[string]*observed{}
	return s
}

// What a patch changes of a Node: the record and the consent, and the taint and the cordon that the step names.
func TestPatchesOfANode(t *testing.T) {
	record := &healthaction.Record{State: healthaction.Claimed, Fault: "reset-1"}
	team := corev1.Taint{Key: "example.com/team", Effect: corev1.TaintEffectNoSchedule}
	ours := corev1.Taint{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoSchedule}
	evicting := corev1.Taint{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoExecute}
	type changes = map[string]any
	for name, test := range map[string]struct {
		taints      []corev1.Taint
		recorded    bool
		step        healthaction.Step
		annotations changes
		spec        changes
	}{
		"a claim": {
			step: healthaction.Step{Record: record}, annotations: changes{labels.HealthRecord: record.Encode()},
		},
		"the end of a record": {recorded: true, annotations: changes{labels.HealthRecord: nil}},
		"the end of none":     {step: healthaction.Step{EndConsent: true}, annotations: changes{labels.HealthConsent: nil}},
		"a taint": {
			taints: []corev1.Taint{team, evicting}, step: healthaction.Step{Taint: new(true)},
			spec: changes{"taints": []corev1.Taint{team, ours}},
		},
		"the end of a taint": {
			taints: []corev1.Taint{ours, team}, step: healthaction.Step{Taint: new(false)},
			spec: changes{"taints": []corev1.Taint{team}},
		},
		"the end of all taints": {
			taints: []corev1.Taint{ours}, step: healthaction.Step{Taint: new(false)}, spec: changes{"taints": []corev1.Taint{}},
		},
		"a cordon":            {step: healthaction.Step{Unschedulable: new(true)}, spec: changes{"unschedulable": true}},
		"the end of a cordon": {step: healthaction.Step{Unschedulable: new(false)}, spec: changes{"unschedulable": false}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "7"}}
			if node.Spec.Taints = test.taints; test.recorded {
				node.Annotations = map[string]string{labels.HealthRecord: "x"}
			}
			if test.annotations == nil {
				test.annotations = changes{}
			}
			want := changes{"metadata": changes{"uid": "1", "resourceVersion": "7", "annotations": test.annotations}}
			if test.spec != nil {
				want["spec"] = test.spec
			}
			got, err := json.Marshal(patchOf(node, &test.step))
			g.Expect(err).NotTo(HaveOccurred())
			wanted, err := json.Marshal(want)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(MatchJSON(wanted))
		})
	}
}

// A write that fails holds its node back, and counts as a rejection if the step takes a place.
func TestOutcomesOfAWrite(t *testing.T) {
	timing, resource := DefaultTiming(), schema.GroupResource{Resource: "nodes"}
	record := &healthaction.Record{State: healthaction.Claimed}
	forbidden := apierrors.NewForbidden(resource, "a", errors.New("no"))
	internal := apierrors.NewInternalError(errors.New("etcd is full"))
	conflict := apierrors.NewConflict(resource, "a", errors.New("it has changed"))
	for name, test := range map[string]struct {
		err      error
		record   *healthaction.Record
		held     bool
		requeued time.Duration
		// message is that of the failure; before is the one of an earlier write.
		message  string
		rejected bool
	}{
		"success":          {record: record},
		"held":             {record: record, held: true, message: "before"},
		"the node is gone": {err: apierrors.NewNotFound(resource, "a"), record: record, message: "before"},
		"a conflict":       {err: conflict, record: record, requeued: timing.RetryStale, message: "before"},
		"an error": {
			err: internal, record: record, requeued: 2 * timing.FirstRetry, message: internal.ErrStatus.Message, rejected: true,
		},
		"a refusal": {
			err: forbidden, record: record, requeued: 30 * time.Second, message: forbidden.ErrStatus.Message, rejected: true,
		},
		"no answer": {
			err: context.DeadlineExceeded, record: record, requeued: 2 * timing.FirstRetry, rejected: true,
		},
		"an error of a release": {err: internal, requeued: 2 * timing.FirstRetry, message: internal.ErrStatus.Message},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
			s := newUnit(interceptor.Funcs{Patch: func(
				ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, o ...client.PatchOption,
			) error {
				_, limited := ctx.Deadline()
				g.Expect(limited).To(BeTrue())
				if g.Expect(test.held).To(BeFalse()); test.err != nil {
					return test.err
				}
				return c.Patch(ctx, object, patch, o...)
			}}, node)
			read := &corev1.Node{}
			g.Expect(s.Client.Get(t.Context(), client.ObjectKeyFromObject(node), read)).To(Succeed())
			var logged []string
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) },
				funcr.Options{}))
			before := failure{message: "before"}
			before.Wait = timing.FirstRetry
			s.memory.failures["a"], s.observed["a"] = before, &observed{node: read, hold: test.held}
			s.planned.Steps = []healthaction.Step{{Node: "a", Record: test.record, Taint: new(true), Why: "a fault"}}
			s.carryOut(ctx)

			failed, fails := s.memory.failures["a"]
			g.Expect(failed.message).To(Equal(test.message))
			g.Expect(fails).To(Equal(name != "success"))
			if test.requeued > timing.RetryStale {
				g.Expect(failed.Until).To(Equal(s.Now.Add(test.requeued)))
			}
			result, _ := s.Result(time.Time{})
			g.Expect(result.RequeueAfter).To(Equal(test.requeued))
			want := map[string]rejection{}
			if test.rejected {
				want["a"] = rejection{since: s.Now, message: test.message}
			}
			g.Expect(s.memory.rejections).To(Equal(want))
			switch {
			case name == "success":
				g.Expect(logged).To(ConsistOf(ContainSubstring("Health action")))
			case test.requeued > timing.RetryStale:
				g.Expect(logged).To(ConsistOf(ContainSubstring("Changing a node")))
			default:
				g.Expect(logged).To(BeEmpty())
			}
			versions := freshness.Writes{}
			if name == "success" {
				after := &corev1.Node{}
				g.Expect(s.Client.Get(ctx, client.ObjectKeyFromObject(node), after)).To(Succeed())
				g.Expect(after.ResourceVersion).NotTo(Equal(read.ResourceVersion))
				versions["a"] = after.ResourceVersion
			}
			g.Expect(s.memory.versions).To(Equal(versions))
			g.Expect(s.observed["a"].written).To(Equal(name == "success"))
		})
	}
}

// What was not written is shown as not done; of a node without a verdict nothing is shown unless its write has failed.
func TestVerdictsOfAPass(t *testing.T) {
	type verdicts = map[string]healthaction.Verdict
	tainted := healthaction.Verdict{Done: v1.HealthActionTaint, Text: "tainted"}
	failed := healthaction.Verdict{
		Hold: healthaction.HoldRejected, Text: "the API server has rejected a change of the node: no",
	}
	for name, test := range map[string]struct {
		written, failed, planned bool
		want                     verdicts
	}{
		"written":                     {written: true, planned: true, want: verdicts{"a": tainted}},
		"written after a failure":     {written: true, failed: true, planned: true, want: verdicts{"a": tainted}},
		"not written":                 {planned: true, want: verdicts{"a": {}}},
		"failed":                      {failed: true, planned: true, want: verdicts{"a": failed}},
		"failed, without a verdict":   {failed: true, want: verdicts{"a": failed}},
		"not written, and no verdict": {want: verdicts{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newUnit(interceptor.Funcs{})
			s.planned = healthaction.Plan{
				Steps: []healthaction.Step{{Node: "a", Taint: new(true)}}, Nodes: verdicts{},
			}
			s.observed["a"] = &observed{written: test.written}
			if test.planned {
				s.planned.Nodes["a"] = tainted
			}
			if test.failed {
				s.memory.failures["a"] = failure{message: "no"}
			}
			s.publish()
			verdict, known := s.Fleet.HealthAction("a")
			g.Expect(known).To(BeTrue())
			g.Expect(verdict).To(Equal(test.want["a"]))
			g.Expect(s.planned.Nodes).To(Equal(test.want))
		})
	}
}

// An action is given up once it was rejected for so long, and for as long again.
func TestRejectionsOfAnAction(t *testing.T) {
	g := NewWithT(t)
	m, now := newMemory(), time.Unix(1000, 0)
	const wait = 5 * time.Minute
	for _, step := range []struct {
		after time.Duration
		until time.Time
	}{
		{}, {wait - time.Nanosecond, time.Time{}}, {wait, now.Add(2 * wait)},
		{wait + time.Second, now.Add(2*wait + time.Second)},
	} {
		m.reject("a", now.Add(step.after), wait, step.after.String())
		g.Expect(m.rejections).To(Equal(map[string]rejection{
			"a": {since: now, until: step.until, message: step.after.String()},
		}))
	}
	takes := &healthaction.Record{State: healthaction.Claimed}
	for i, test := range []struct {
		steps []healthaction.Step
		now   time.Time
		left  int
	}{
		{[]healthaction.Step{{Node: "a", Record: takes}}, now.Add(time.Hour), 1},
		{nil, now.Add(2 * wait), 1},
		{[]healthaction.Step{{Node: "b", Record: takes}, {Node: "a"}}, now.Add(2*wait + time.Second), 0},
	} {
		m.endRejections(test.steps, test.now)
		g.Expect(m.rejections).To(HaveLen(test.left), "%d", i)
	}
}

// A pass that finds something to undo, or to show, is not the last one, though the policy has no actions.
func TestIdlePasses(t *testing.T) {
	shown := map[string]healthaction.Verdict{"a": {}}
	for name, test := range map[string]struct {
		actions *v1.HealthActionsSpec
		none    bool
		planned healthaction.Plan
		idle    bool
	}{
		"nothing to do":     {idle: true},
		"without a policy":  {none: true},
		"an action":         {actions: &v1.HealthActionsSpec{Reset: v1.HealthActionTaint}},
		"something to undo": {planned: healthaction.Plan{Steps: []healthaction.Step{{Node: "a"}}}},
		"something to show": {planned: healthaction.Plan{Nodes: shown}},
	} {
		s := newUnit(interceptor.Funcs{})
		if s.policy = new(healthaction.PolicyOf(decide(test.actions).Input.Spec.Health.Actions)); test.none {
			s.policy = nil
		}
		s.planned = test.planned
		s.memory.rejections["left"] = rejection{}
		s.remember()
		if s.memory.idle != test.idle {
			t.Errorf("%s: idle is %t", name, s.memory.idle)
		}
		if len(s.memory.rejections) != 0 {
			t.Errorf("%s: a rejection stays", name)
		}
	}
}

// Nodes that the operator does not manage are read only while something has to be undone on them.
func TestNodesThatAreRead(t *testing.T) {
	until := time.Unix(2_000_000, 0)
	for name, test := range map[string]struct {
		change    func(*corev1.Node)
		unmanaged bool
		read      bool
	}{
		"managed":     {read: true},
		"not managed": {unmanaged: true},
		"with a record": {unmanaged: true, read: true, change: func(n *corev1.Node) {
			n.Annotations = map[string]string{labels.HealthRecord: "x"}
		}},
		"with our taint": {unmanaged: true, read: true, change: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoSchedule}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			if test.change != nil {
				test.change(node)
			}
			s := newUnit(interceptor.Funcs{List: func(
				ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption,
			) error {
				g.Expect(o).To(ConsistOf(client.UnsafeDisableDeepCopy))
				return c.List(ctx, list)
			}}, node)
			entry := &fleet.Entry{Facts: nodeinfo.Facts{Name: "a", HasGPU: true}, Planned: &fleet.PlannedNode{}}
			entry.Planned.NodePlan.NodePool, entry.Planned.NodePlan.HealthReporter = "pool", "agent"
			if !test.unmanaged {
				s.Fleet.Set(entry)
				s.view = s.Fleet.View()
			}
			s.memory.rejections["a"] = rejection{until: until, message: "no"}
			s.observed, s.nodes = nil, []healthaction.Node{{Name: "left"}}
			g.Expect(s.readNodes(t.Context())).To(Succeed())
			g.Expect(s.nodes).To(HaveLen(map[bool]int{true: 1}[test.read]))
			g.Expect(s.observed).To(HaveLen(len(s.nodes)))
			if !test.read {
				return
			}
			read := s.nodes[0]
			g.Expect(read.Name).To(Equal("a"))
			g.Expect(read.Managed && read.Watched && read.Group == "pool/").To(Equal(!test.unmanaged))
			g.Expect(read.Rejected).To(Equal("no"))
			g.Expect(read.RejectedUntil).To(Equal(until))
			of := s.observed["a"]
			g.Expect(of.node.Name).To(Equal("a"))
			g.Expect(of.seen).To(Equal(read))
			g.Expect(test.unmanaged).To(Equal(of.entry != entry))
		})
	}
}

// A pass before the assessment of all nodes comes again when it is due, and an error names what was not read.
func TestPassesThatDoNothing(t *testing.T) {
	g := NewWithT(t)
	s := newUnit(interceptor.Funcs{List: func(
		context.Context, client.WithWatch, client.ObjectList, ...client.ListOption,
	) error {
		return errors.New("unavailable")
	}})
	result, err := s.run(t.Context())
	g.Expect(err).To(MatchError("listing nodes: unavailable"))
	g.Expect(result).To(Equal(ctrl.Result{}))
	s.Fleet.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "a", HasGPU: true, HasDiscoveryLabels: true}})
	s.view = s.Fleet.View()
	result, err = s.run(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: s.Timing.Assessment}))
}

// Without Decisions of a policy, a node is planned for without its entry.
func TestFactsOfANode(t *testing.T) {
	g := NewWithT(t)
	s, node := newUnit(interceptor.Funcs{}), &corev1.Node{}
	entry := &fleet.Entry{Planned: &fleet.PlannedNode{}}
	facts := s.facts(node, entry)
	g.Expect(facts.Node == node && facts.Managed && facts.Decisions == s.Basis.Decisions &&
		facts.Planned == &entry.Planned.NodePlan && facts.Assessment == &entry.Latest).To(BeTrue())
	g.Expect(s.facts(node, &fleet.Entry{}).Decisions).To(BeNil())
	g.Expect(s.facts(node, nil).Managed).To(BeFalse())
	s.Basis = &fleet.Basis{}
	g.Expect(s.facts(node, entry)).To(And(HaveField("Planned", BeNil()), HaveField("Managed", true)))
	g.Expect(policyOf(nil)).To(BeNil())
	g.Expect(policyOf(s.Basis)).To(BeNil())
}

// DefaultTiming has the delays that the documentation names.
func TestDefaultTiming(t *testing.T) {
	timing := DefaultTiming()
	NewWithT(t).Expect(timing).To(Equal(Timing{
		Delays: timing.Delays, RetryForbidden: 30 * time.Second, GiveUp: 5 * time.Minute, Deadline: 10 * time.Second,
	}))
	NewWithT(t).Expect(timing.Assessment).To(Equal(10 * time.Second))
}

// refusing is a manager that takes no controller.
type refusing struct{ manager.Manager }

func (refusing) Add(manager.Runnable) error { return errors.New("it is stopped") }

// A controller that the manager does not take is an error.
func TestSetupFails(t *testing.T) {
	g := NewWithT(t)
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(New(Options{Fleet: fleet.New()}).SetupWithManager(refusing{mgr})).To(MatchError("it is stopped"))
}
