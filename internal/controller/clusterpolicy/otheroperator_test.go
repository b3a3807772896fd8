package clusterpolicy

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
