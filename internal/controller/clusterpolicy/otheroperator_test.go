package clusterpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

var _ = Describe("NVIDIA's operator", func() {
	var (
		env   *testEnv
		other *corev1.Pod
	)

	// watch makes the Reconciler look for NVIDIA's operator, as after a restart.
	watch := func() {
		env.reconciler.OtherOperator = otheroperator.New(otheroperator.Options{
			Live: env.reconciler.Live, Reviews: kubernetes.NewForConfigOrDie(config).AuthorizationV1().SubjectAccessReviews(),
			Clock: env.clock, Namespace: namespace, OwnVariable: "OPERATOR_IMAGE", Timing: otheroperator.DefaultTiming(),
		})
	}
	BeforeEach(func() {
		env = newEnv(gpuNode("a"))
		other = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "nvidias", Labels: map[string]string{
				labels.App: "gpu-operator", labels.Component: "gpu-operator",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "gpu-operator", Image: "nvcr.io/nvidia/gpu-operator:v26.3.1",
			}}},
		}
	})
	createPod := func(ctx context.Context) {
		Expect(admin.Create(ctx, other)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, other))).To(Succeed())
		})
	}
	// grant gives the account of the pod a right to write what NVIDIA's operator writes, as its chart does.
	grant := func(ctx context.Context, rule rbacv1.PolicyRule) {
		meta := metav1.ObjectMeta{Name: "nvidias"}
		role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: other.Namespace, Name: "default"}},
		}
		for _, object := range []client.Object{role, binding} {
			Expect(admin.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		}
	}
	create := func(ctx context.Context) {
		grant(ctx, rbacv1.PolicyRule{APIGroups: []string{"nvidia.com"}, Resources: []string{"*"}, Verbs: []string{
			"create", "get", "list", "watch", "update", "patch", "delete",
		}})
		createPod(ctx)
		// The authorizer of the API server reads roles and bindings from its cache.
		user := cluster.ServiceAccountUser(other.Namespace, "default")
		reviews := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SubjectAccessReviews()
		Eventually(func() (bool, error) {
			review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: "nvidia.com", Resource: "clusterpolicies", Name: "policy", Subresource: "status", Verb: "update",
				}},
			}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed, err
		}).Should(BeTrue())
	}

	It("is not a pod of a tenant that looks like it", func(ctx SpecContext) {
		grant(ctx, rbacv1.PolicyRule{
			APIGroups: []string{"nvidia.com"}, Resources: []string{"clusterpolicies"}, Verbs: []string{"get", "list", "watch"},
		})
		other.Spec.NodeSelector = map[string]string{"no": "node"}
		createPod(ctx)
		watch()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		Expect(condition(env.policy(ctx), v1.ConditionOtherOperatorRunning)).To(BeEmpty())
		Expect(env.fleet.Basis()).To(HaveField("KeepNodes", false))
	})

	It("freezes everything while it is at work", func(ctx SpecContext) {
		create(ctx)
		watch()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.takeCalls()
		env.pass(ctx, 0)
		Expect(env.takeWrites()).To(ConsistOf(HavePrefix("create Event policy."), "update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionOtherOperatorRunning)).To(Equal("True OtherOperatorRunning"))
		Expect(message(policy, v1.ConditionOtherOperatorRunning)).To(HavePrefix("Pod nvidias in namespace default runs "))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False OtherOperatorRunning"))
		Expect(policy.Status.State).To(Equal(v1.StateNotReady))
		Expect(env.fleet.Basis()).To(And(HaveField("KeepNodes", true), HaveField("Decisions", BeNil())))

		env.pass(ctx, time.Hour)
		Expect(env.takeWrites()).To(BeEmpty(), "once is enough")

		Expect(admin.Delete(ctx, other)).To(Succeed())
		watch()
		env.settle(ctx)
		Expect(condition(env.policy(ctx), v1.ConditionOtherOperatorRunning)).To(BeEmpty())
	})

	It("keeps what it has set", func(ctx SpecContext) {
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		before := env.policy(ctx)
		create(ctx)
		watch()
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		env.takeCalls()
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(HaveLen(2))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionOtherOperatorRunning)).To(Equal("True OtherOperatorRunning"))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("True Reconciled"))
		Expect(policy.Status.Operands).To(Equal(before.Status.Operands))
		Expect(policy.Status.NodeSummary).To(Equal(before.Status.NodeSummary))
	})

	It("leaves nodes and namespace alone without a policy", func(ctx SpecContext) {
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.settle(ctx)
		forgetPolicy(ctx, env.policy(ctx))
		removeStack(ctx)
		create(ctx)
		watch()
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(env.fleet.Basis()).To(HaveField("KeepNodes", true))
		Expect(admin.Delete(ctx, other)).To(Succeed())
		watch()
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf("apply Namespace " + namespace))
		Expect(env.fleet.Basis()).To(HaveField("KeepNodes", false))
	})

	It("is at work as long as that is not known", func(ctx SpecContext) {
		watch()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.takeCalls()
		failed := env.failOnce("live list Pod", 1)
		_, err := env.reconcileAfter(ctx, 0)
		Expect(failed().op).NotTo(BeEmpty())
		Expect(err).To(MatchError(errInjected))
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(env.fleet.Basis()).To(BeNil(), "nodes are not written")
		env.settle(ctx)
	})

	It("is at work if it writes a DaemonSet", func(ctx SpecContext) {
		watch()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		plugin := daemonSet(ctx, pluginName)
		plugin.Annotations = map[string]string{labels.NVIDIAHash: "1"}
		Expect(admin.Update(ctx, plugin)).To(Succeed())
		env.takeCalls()
		Expect(env.pass(ctx, statusInterval)).To(Equal(10 * time.Minute))
		Expect(env.takeWrites()).To(HaveLen(2))
		Expect(message(env.policy(ctx), v1.ConditionOtherOperatorRunning)).To(HavePrefix("DaemonSet " + pluginName))
		Expect(daemonSet(ctx, pluginName).Annotations).NotTo(HaveKey(labels.Digest))
		env.pass(ctx, 10*time.Minute)
		Expect(daemonSet(ctx, pluginName).Annotations).To(HaveKey(labels.Digest))
		env.settle(ctx)
	})

	It("gets no condition while the CRD cannot be read", func(ctx SpecContext) {
		create(ctx)
		watch()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		// The first read is that of every pass.
		failed := env.failOnce("live get CustomResourceDefinition", 2)
		_, err := env.reconcileAfter(ctx, 0)
		Expect(failed().op).NotTo(BeEmpty())
		Expect(err).To(MatchError(errInjected))
		Expect(env.policy(ctx).Status.Conditions).To(BeEmpty())
	})
})

// A policy is not written if the API server would drop fields of it, also if the cache does not show that yet.
func TestTheSchemaIsRecheckedBeforeAWrite(t *testing.T) {
	for name, test := range map[string]struct {
		cachedMissing, liveMissing string
		want                       bool
	}{
		"the CRD has all fields":              {want: true},
		"the CRD misses a field":              {cachedMissing: "global", liveMissing: "global"},
		"the CRD was replaced by NVIDIA's":    {liveMissing: "global"},
		"the CRD misses fields of the status": {liveMissing: "pools"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cached := fakeCluster(crdWithout("7", test.cachedMissing), nil, policyOf(truncatedSpec(), 1))
			reader := &failingReader{Reader: cached}
			r := New(Options{
				Schema: &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: cached, Live: reader},
				Clock:  clocktesting.NewFakePassiveClock(time.Now()),
				Timing: DefaultTiming(),
			})
			s := r.newScope()
			s.policy = policyOf(truncatedSpec(), 1)
			s.compareSchema(t.Context())
			reader.Reader = fakeCluster(crdWithout("8", test.liveMissing), nil, nil)
			g.Expect(s.recheckSchema(t.Context())).To(Equal(test.want))
			g.Expect(s.err).NotTo(HaveOccurred())
		})
	}
}

// A finding is reported once for each policy: in an Event, and in the status where a write loses no field.
func TestReportsOfTheOtherOperator(t *testing.T) {
	found := &otheroperator.Finding{Key: "pod", Message: "Pod a runs NVIDIA's operator"}
	const written = "update status ClusterPolicy policy"
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "policy")
	for name, test := range map[string]struct {
		before       string
		prepare      func(*unitEnv, *scope)
		fails        string
		err          error
		events       int
		writes       []string
		wait         time.Duration
		want         string
		noteDeletion bool
	}{
		"the first":      {events: 1, writes: []string{written}, want: "pod policy"},
		"the same":       {before: "pod policy", writes: []string{written}, want: "pod policy"},
		"another policy": {before: "pod other", events: 1, writes: []string{written}, want: "pod policy"},
		"no policy":      {prepare: func(_ *unitEnv, s *scope) { s.policy = nil }, want: "pod"},
		"missing fields": {
			prepare: func(_ *unitEnv, s *scope) { s.missingFields = []string{"spec.a"} }, events: 1, want: "pod policy",
		},
		"a deleted policy": {
			prepare: func(_ *unitEnv, s *scope) { s.noteDeleted(notFound) }, events: 1, wait: 5 * time.Second,
			want: "pod policy", noteDeletion: true,
		},
		"another CRD": {prepare: func(u *unitEnv, _ *scope) {
			definition, live := crdWithout("", "global"), crdWithout("", "")
			u.Expect(u.get(live)).To(Succeed())
			definition.SetResourceVersion(live.GetResourceVersion())
			u.Expect(u.server.Update(u.context(), definition)).To(Succeed())
		}, events: 1, want: "pod policy"},
		"a CRD that is unread": {fails: "live get CustomResourceDefinition", err: errInjected, events: 1, want: "pod policy"},
		"a failed write": {
			fails: "update status ClusterPolicy", err: errInjected, events: 1, writes: []string{written}, want: "pod policy",
		},
		"a policy that is gone": {
			fails: "update status ClusterPolicy", err: notFound, events: 1, writes: []string{written}, want: "pod policy",
			noteDeletion: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, policyOf(v1.ClusterPolicySpec{}, 1))
			s := u.scope()
			u.Expect(u.get(s.policy)).To(Succeed())
			s.compareSchema(u.context())
			u.otherOperator = test.before
			if test.prepare != nil {
				test.prepare(u, s)
			}
			u.takeCalls()
			u.onCall(func(_ context.Context, c call) error {
				if c.op == test.fails {
					return test.err
				}
				return nil
			})
			s.reportOther(u.context(), found)
			u.Expect(slices.DeleteFunc(u.takeWrites(), func(write string) bool {
				return strings.HasPrefix(write, "create Event ")
			})).To(ConsistOf(test.writes))
			u.Expect(u.events()).To(ConsistOf(slices.Repeat(
				[]string{"Warning OtherOperatorRunning: " + found.Message}, test.events)))
			u.Expect(u.otherOperator).To(Equal(test.want))
			u.Expect(s.requeueDelay).To(Equal(test.wait))
			u.Expect(u.logged).To(HaveLen(map[bool]int{true: 1}[test.before != test.want]))
			u.Expect(s.err == nil).To(Equal(test.err == nil), "%v", s.err)
			u.Expect(errors.Is(s.err, test.err)).To(BeTrue(), "%v", s.err)
			u.Expect(u.deletedPolicy.until.IsZero()).To(Equal(!test.noteDeletion))
			if test.err == nil && test.writes != nil {
				u.Expect(u.get(s.policy)).To(Succeed())
				u.Expect(condition(s.policy, v1.ConditionOtherOperatorRunning)).To(Equal("True OtherOperatorRunning"))
				u.Expect(message(s.policy, v1.ConditionOtherOperatorRunning)).To(Equal(found.Message))
			}
		})
	}
}

// allowed answers that every account may write.
type allowed struct{}

func (allowed) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

// While NVIDIA's operator is at work, nodes and objects stay as they are. What it leaves is looked for
// again afterwards.
func TestAPassBesideTheOtherOperator(t *testing.T) {
	u := newUnit(t, policyOf(v1.ClusterPolicySpec{}, 1))
	u.hydrate(gpuNode("a"))
	u.OtherOperator = otheroperator.New(otheroperator.Options{
		Live: u.Live, Reviews: allowed{}, Clock: u.clock, Namespace: namespace, OwnVariable: "OPERATOR_IMAGE",
		Timing: otheroperator.DefaultTiming(),
	})
	u.failOnce("cached list DaemonSet", 1)
	_, err := u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.takeWrites()).To(BeEmpty())
	u.Expect(u.Fleet.Basis()).To(BeNil())
	u.Expect(u.metrics()).To(And(HaveKeyWithValue("frozen", 0.0), HaveKeyWithValue("reconciliation_status", -2.0)))
	u.Expect(u.pass()).To(Equal(2 * time.Second))
	u.Expect(u.Fleet.Basis().Decisions).NotTo(BeNil())

	u.driversTakenOver = true
	plugin := &appsv1.DaemonSet{ObjectMeta: namespaced(pluginName)}
	u.Expect(u.get(plugin)).To(Succeed())
	plugin.UID, plugin.Annotations[labels.NVIDIAHash] = "plugin", "1"
	u.Expect(u.server.Update(u.context(), plugin)).To(Succeed())
	u.takeCalls()
	u.Expect(u.pass()).To(Equal(10 * time.Minute))
	u.Expect(u.takeWrites()).To(ConsistOf(HavePrefix("create Event policy."), "update status ClusterPolicy policy"))
	u.Expect(u.Fleet.Basis()).To(And(HaveField("KeepNodes", true), HaveField("Decisions", BeNil())))
	u.Expect(u.driversTakenOver).To(BeFalse())
	u.Expect(u.metrics()).To(And(HaveKeyWithValue("frozen", 1.0), HaveKeyWithValue("reconciliation_status", 0.0)))
	u.Expect(u.otherOperator).NotTo(BeEmpty())
	u.clock.Step(10 * time.Minute)
	_, err = u.pass()
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(u.otherOperator).To(BeEmpty())
	u.Expect(u.logged).To(ContainElement(ContainSubstring("No longer frozen: NVIDIA's operator is not at work")))
}
