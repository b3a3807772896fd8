package clusterpolicy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// A burst of events is one pass, the later the more nodes there are, up to a limit.
func TestEventsAreDebounced(t *testing.T) {
	g, timing := NewWithT(t), DefaultTiming()
	g.Expect(timing).To(Equal(Timing{
		Debounce: 200 * time.Millisecond, DebouncePerNode: time.Millisecond, MaxDebounce: 1500 * time.Millisecond,
		FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, RetryConflict: 30 * time.Second,
		StatusDelay: 2 * time.Second, SpecStabilization: 10 * time.Second, RetryDeleted: 5 * time.Second,
		RetryHandOver: time.Second, Deadline: 3 * time.Second,
	}))
	for nodes, want := range map[int]time.Duration{
		0: 200 * time.Millisecond, 100: 300 * time.Millisecond, 5000: 1500 * time.Millisecond,
	} {
		g.Expect(timing.debounce(nodes)).To(Equal(want), "%d nodes", nodes)
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		r := &Reconciler{Options: Options{Timing: timing}}
		r.nodes.Store(100)
		r.debounced().Generic(t.Context(), event.GenericEvent{Object: &corev1.Node{}}, queue)
		time.Sleep(299 * time.Millisecond)
		synctest.Wait()
		g.Expect(queue.Len()).To(BeZero())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		request, _ := queue.Get()
		g.Expect(request).To(Equal(reconcile.Request{NamespacedName: types.NamespacedName{Name: "cluster"}}))
		queue.Done(request)
	})
}

// A pass that fails is retried with a back-off.
func TestBackoffOfPasses(t *testing.T) {
	g, limiter := NewWithT(t), DefaultTiming().rateLimiter()
	g.Expect(limiter.When(clusterRequest)).To(Equal(100 * time.Millisecond))
	g.Expect(limiter.When(clusterRequest)).To(Equal(200 * time.Millisecond))
	for range 20 {
		limiter.When(clusterRequest)
	}
	g.Expect(limiter.When(clusterRequest)).To(Equal(30 * time.Second))
}

// assess gives each node an entry that is assessed by the basis, with this reason.
func (u *unitEnv) assess(reason string, nodes ...*corev1.Node) {
	for _, node := range nodes {
		entry := &fleet.Entry{Facts: observe.Facts(node), BasisVersion: u.Fleet.Basis().Version}
		entry.Latest.Stage, entry.Latest.Usable, entry.Latest.Reason = v1.StageValidated, true, reason
		entry.Report.Assessment = entry.Latest
		u.Fleet.Set(entry)
	}
}

// The metrics and the status are those of the pass: what the nodes are, what was applied, and what has failed.
func TestWhatAPassReports(t *testing.T) {
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	u := newUnit(t, policyOf(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
		UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(true)},
	}}, 1), home)
	u.Ignored = []string{"DRIVER_IMAGE has no effect"}
	u.ServerVersion = observe.NewNote(u.clock, func(context.Context) (string, error) { return "Kubernetes is new", nil })
	node, failed := gpuNode("a"), gpuNode("b")
	u.Expect(u.pass()).To(BeZero(), "the fleet has no nodes yet")
	u.Expect(u.metrics()).To(And(HaveKeyWithValue("reconciliation_status", -1.0), HaveKeyWithValue("frozen", 0.0),
		HaveKeyWithValue("reconciliation_failed_total", 0.0), HaveKeyWithValue("reconciliation_has_nfd_labels", 0.0)))
	u.hydrate(node, failed)
	u.Expect(u.pass()).To(Equal(2 * time.Second))
	u.Expect(u.nodes.Load()).To(Equal(int64(2)))
	u.takeCalls()
	u.Expect(u.pass()).To(Equal(2*time.Second), "of the basis with the DaemonSets")
	u.assess("", node)
	u.assess(v1.ReasonMIGConfigFailed, failed)
	u.Fleet.SetHealthActions(map[string]healthaction.Verdict{"a": {Done: v1.HealthActionTaint}})
	u.Expect(u.pass()).To(Equal(10*time.Minute), "the next look at the notes")
	u.Expect(u.takeWrites()).To(ContainElement("update status ClusterPolicy policy"))
	u.Expect(u.metrics()).To(And(
		HaveKeyWithValue("driver_auto_upgrade_enabled", 1.0), HaveKeyWithValue("reconciliation_has_nfd_labels", 1.0),
		HaveKeyWithValue("gpu_nodes_total", 2.0), HaveKeyWithValue("nodes Validated ready", 2.0),
		HaveKeyWithValue("nodes_mig_failed", 1.0), HaveKeyWithValue("reconciliation_failed_total", 0.0),
		HaveKeyWithValue("frozen", 0.0), HaveKeyWithValue("health_action_nodes taint", 1.0),
	))
	policy := policyOf(v1.ClusterPolicySpec{}, 0)
	u.Expect(u.get(policy)).To(Succeed())
	u.Expect(policy.Status.Namespace).To(Equal(namespace))
	u.Expect(policy.Status.NodeSummary).To(HaveField("Total", int32(2)))
	u.Expect(message(policy, v1.ConditionUnsupportedFields)).To(Equal("DRIVER_IMAGE has no effect; Kubernetes is new"))

	u.failOnce("cached list DaemonSet", 1)
	_, err := u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.metrics()).To(And(HaveKeyWithValue("reconciliation_failed_total", 1.0),
		HaveKeyWithValue("reconciliation_status", -2.0)))
	u.failOnce("cached list ClusterPolicy", 1)
	_, err = u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.metrics()).To(HaveKeyWithValue("reconciliation_failed_total", 2.0))
}

// The metrics of a pass say what it was about and whether it has failed, also for one operand.
func TestMetricsOfAPass(t *testing.T) {
	computed := v1.ClusterPolicyStatus{State: v1.StateReady}
	decided := func(driver, auto bool) plan.Plan {
		return plan.Compute(decisionsOf(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			Enabled: new(driver), UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(auto)},
		}}), nil, nil)
	}
	for name, test := range map[string]struct {
		change  func(*scope)
		in      status.Input
		failure error
		want    metrics.PassStats
	}{
		"without a plan": {want: metrics.PassStats{Status: &computed}},
		"a failure":      {failure: errInjected, want: metrics.PassStats{Status: &computed, Failed: true}},
		"a failed operand": {
			in:   status.Input{Applied: map[operand.Name]status.ApplyResult{"a": {Err: errInjected}}},
			want: metrics.PassStats{Status: &computed, Failed: true},
		},
		"both": {
			in: status.Input{Applied: map[operand.Name]status.ApplyResult{"a": {Err: errInjected}}}, failure: errInjected,
			want: metrics.PassStats{Status: &computed, Failed: true},
		},
		"fields and freeze": {
			change: func(s *scope) {
				s.missingFields, s.missingDriverFields, s.undecodable = []string{"a"}, []string{"b", "c"}, "d"
				s.view.AnyDiscovered = true
			},
			want: metrics.PassStats{Status: &computed, MissingFields: 3, Frozen: true, Discovered: true},
		},
		"upgrades": {
			in: status.Input{Plan: decided(true, true)}, want: metrics.PassStats{Status: &computed, AutoUpgrade: true},
		},
		"no driver":            {in: status.Input{Plan: decided(false, true)}, want: metrics.PassStats{Status: &computed}},
		"no upgrades":          {in: status.Input{Plan: decided(true, false)}, want: metrics.PassStats{Status: &computed}},
		"neither, at a freeze": {in: status.Input{Plan: decided(false, false)}, want: metrics.PassStats{Status: &computed}},
	} {
		s := &scope{}
		if test.change != nil {
			test.change(s)
		}
		got := s.passMetrics(test.in, computed, test.failure)
		test.want.HealthActions = status.CountHealthActions(s.view)
		if len(test.in.Plan.Steps) > 0 {
			test.want.Nodes = status.CountNodes(s.view)
		}
		NewWithT(t).Expect(got).To(Equal(test.want), name)
	}
}

// The metrics of a pass without a status say whether it was frozen, and why.
func TestMetricsWithoutAStatus(t *testing.T) {
	for name, test := range map[string]struct {
		frozen         bool
		err            error
		status, frozes float64
	}{
		"no policy":      {status: -1},
		"frozen":         {frozen: true, status: -1, frozes: 1},
		"failed":         {err: errInjected, status: -2},
		"frozen, failed": {frozen: true, err: errInjected, status: -2},
	} {
		u := newUnit(t)
		s := u.scope()
		s.policy, s.frozen, s.err = nil, test.frozen, test.err
		s.view.Hydrated = true
		s.missingFields, s.missingDriverFields = []string{"a", "b"}, []string{"c"}
		_, err := s.close(u.context())
		u.Expect(errors.Is(err, errInjected)).To(Equal(test.err != nil), name)
		u.Expect(u.metrics()).To(And(HaveKeyWithValue("reconciliation_status", test.status),
			HaveKeyWithValue("frozen", test.frozes), HaveKeyWithValue("definition_missing_fields", 3.0)), name)
	}
}

// The metrics of a frozen pass follow from the last decisions, or else from the status that is kept.
func TestMetricsOfAFrozenPass(t *testing.T) {
	u := newUnit(t)
	s := u.scope()
	s.policy.Status.State = v1.StateReady
	u.Expect(s.frozenMetrics(status.Input{})).To(And(HaveField("Status", Equal(&s.policy.Status)),
		HaveField("Frozen", true)))
	in := status.Input{Namespace: namespace, Plan: plan.Compute(decisionsOf(v1.ClusterPolicySpec{}), nil, nil)}
	u.Expect(s.frozenMetrics(in).Status).To(HaveValue(HaveField("Namespace", namespace)), "as it would be")
	s.err = errInjected
	u.Expect(s.frozenMetrics(in)).To(And(HaveField("Frozen", false), HaveField("Failed", true)))
}

// A status waits for the nodes, unless it does not depend on them.
func TestWhenAStatusIsDue(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &scope{Reconciler: &Reconciler{}, now: now, basis: &fleet.Basis{Since: now.Add(-500 * time.Millisecond)}}
	s.Timing = DefaultTiming()
	for name, test := range map[string]struct {
		in   status.Input
		want time.Duration
	}{
		"all are assessed": {in: status.Input{}},
		"one is not":       {in: status.Input{Unassessed: 1}, want: 1500 * time.Millisecond},
		"a failure":        {in: status.Input{Unassessed: 1, Err: errInjected}},
		"undecodable":      {in: status.Input{Unassessed: 1, Undecodable: "a"}},
	} {
		NewWithT(t).Expect(s.statusDelay(test.in)).To(Equal(test.want), name)
	}
}

// Errors of a pass are joined, the earliest time counts, and a failed pass has only its back-off.
func TestResultOfAPass(t *testing.T) {
	g, other := NewWithT(t), errors.New("other")
	s := &scope{}
	s.requeueAfter(0)
	s.requeueAfter(2 * time.Second)
	s.requeueAfter(time.Second)
	s.requeueAfter(3 * time.Second)
	s.fail(nil)
	g.Expect(s.result()).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
	s.fail(errInjected)
	s.fail(other)
	result, err := s.result()
	g.Expect(err).To(And(MatchError(errInjected), MatchError(other)))
	g.Expect(result).To(BeZero())
}

// Every policy that is not active is marked as ignored, unless it is being deleted or a write could lose fields.
func TestWhichPoliciesAreIgnored(t *testing.T) {
	named := func(name string) *v1.ClusterPolicy {
		policy := policyOf(v1.ClusterPolicySpec{}, 1)
		policy.Name, policy.UID = name, types.UID(name)
		return policy
	}
	deleted := named("deleted")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"a/b"}, new(metav1.Unix(1, 0))
	for _, missing := range [][]string{nil, {"spec.a"}} {
		u := newUnit(t, named("policy"), named("second"), deleted)
		s := u.scope()
		_, all, err := observe.Policies(u.context(), u.server)
		u.Expect(err).NotTo(HaveOccurred())
		s.all, s.missingFields = all, missing
		s.markOthersIgnored(u.context())
		if missing != nil {
			u.Expect(u.takeWrites()).NotTo(ContainElement(HavePrefix("update status")))
			continue
		}
		u.Expect(u.takeWrites()).To(ContainElement("update status ClusterPolicy second"))
		u.Expect(u.takeWrites()).To(BeEmpty())
		for name, state := range map[string]v1.State{"policy": "", "second": v1.StateIgnored, "deleted": ""} {
			policy := named(name)
			u.Expect(u.get(policy)).To(Succeed())
			u.Expect(policy.Status.State).To(Equal(state), name)
		}
	}
}

// A failed write is one of the pass, and one that has to wait is repeated.
func TestWritesOfAStatus(t *testing.T) {
	u := newUnit(t, policyOf(v1.ClusterPolicySpec{}, 1))
	s := u.scope()
	u.Expect(u.get(s.policy)).To(Succeed())
	u.failOnce("update status ClusterPolicy", 1)
	u.Expect(s.writeStatus(u.context(), s.policy, v1.ClusterPolicyStatus{Namespace: "a"})).To(MatchError(errInjected))
	u.Expect(s.err).To(MatchError(errInjected))
	u.onCall(nil)
	s = u.scope()
	u.Expect(u.get(s.policy)).To(Succeed())
	stale := s.policy.DeepCopy()
	u.Expect(s.writeStatus(u.context(), s.policy, v1.ClusterPolicyStatus{Namespace: "a"})).To(Succeed())
	u.Expect(s.requeueDelay).To(BeZero())
	u.Expect(s.writeStatus(u.context(), stale, v1.ClusterPolicyStatus{Namespace: "b"})).To(Succeed())
	u.Expect(s.requeueDelay).To(Equal(200*time.Millisecond), "until the cache shows the write")
}

// The finalizer is added once, and again where a user has removed it. A policy that is gone is not applied.
func TestWhenTheFinalizerIsAdded(t *testing.T) {
	for name, test := range map[string]struct {
		has        bool
		added      addedFinalizer
		fails      error
		want       bool
		writes     int
		deletedFor time.Duration
	}{
		"new":                         {want: true, writes: 1},
		"already there":               {has: true, want: true},
		"added, not yet in the cache": {added: addedFinalizer{policyUID, "1000"}, want: true},
		"added to another policy":     {added: addedFinalizer{"another", "1000"}, want: true, writes: 1},
		"removed by a user":           {added: addedFinalizer{policyUID, "999"}, want: true, writes: 1},
		"failed":                      {fails: errInjected, writes: 1},
		"the policy is gone": {
			fails: apierrors.NewNotFound(schema.GroupResource{}, "policy"), writes: 1, deletedFor: 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := policyOf(v1.ClusterPolicySpec{}, 1)
			if test.has {
				stored.Finalizers = []string{labels.RemovalFinalizer}
			}
			u := newUnit(t, stored)
			s := u.scope()
			u.Expect(u.get(s.policy)).To(Succeed())
			before := s.policy
			u.Expect(before.ResourceVersion).To(Equal("999"))
			u.addedFinalizer = test.added
			u.onCall(func(context.Context, call) error { return test.fails })
			u.Expect(s.addFinalizer(u.context())).To(Equal(test.want))
			u.Expect(u.takeWrites()).To(HaveLen(test.writes))
			u.Expect(s.deletedFor()).To(Equal(test.deletedFor))
			if test.fails != nil {
				u.Expect(s.err).To(MatchError(test.fails))
				u.Expect(s.policy).To(BeIdenticalTo(before))
				return
			}
			u.Expect(s.err).NotTo(HaveOccurred())
			if test.writes > 0 {
				u.Expect(s.policy.Finalizers).To(Equal([]string{labels.RemovalFinalizer}))
				u.Expect(s.policy.ManagedFields).To(BeEmpty())
				u.Expect(before.Finalizers).To(BeEmpty(), "the object of the cache")
				u.Expect(u.addedFinalizer).To(Equal(addedFinalizer{policyUID, s.policy.ResourceVersion}))
			}
		})
	}
}

// While another policy is active, those that are being deleted lose the finalizer at once.
func TestWhoseFinalizersAreDropped(t *testing.T) {
	named := func(name string, deleted bool) *v1.ClusterPolicy {
		policy := policyOf(v1.ClusterPolicySpec{}, 1)
		if deleted {
			policy = deletedPolicyOf(v1.ClusterPolicySpec{})
		}
		policy.Finalizers = []string{labels.RemovalFinalizer}
		policy.Name, policy.UID = name, types.UID(name)
		return policy
	}
	u := newUnit(t, named("policy", false), named("ignored", false), named("deleted", true))
	s := u.scope()
	_, all, err := observe.Policies(u.context(), u.server)
	u.Expect(err).NotTo(HaveOccurred())
	s.all = append(all, *named("gone", true))
	u.takeCalls()
	u.failOnce("patch ClusterPolicy", 1)
	s.dropFinalizers(u.context())
	u.Expect(s.err).To(MatchError(errInjected))
	u.onCall(nil)
	u.takeCalls()
	s.err = nil
	s.dropFinalizers(u.context())
	u.Expect(s.err).NotTo(HaveOccurred())
	u.Expect(u.takeWrites()).To(Equal([]string{"patch ClusterPolicy deleted", "patch ClusterPolicy gone"}))
}
