package clusterpolicy

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

const (
	cleanupName = "nvidia-gpu-cleanup"
	held        = "held by team-a/train-0"
)

// setRemoval enters a step of the removal for each node, as the node controller does.
func (env *testEnv) setRemoval(step removal.Step) {
	for _, node := range env.nodes {
		env.fleet.Set(&fleet.Entry{
			Facts: observe.Facts(node), BasisVersion: env.fleet.Basis().Version, Removal: &fleet.NodeRemoval{Step: step},
		})
	}
}

// policyExists reports whether the API server still has the policy.
func policyExists(ctx context.Context) bool {
	GinkgoHelper()
	err := admin.Get(ctx, client.ObjectKey{Name: "policy"}, &v1.ClusterPolicy{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return !apierrors.IsNotFound(err)
}

var _ = Describe("A deleted policy", func() {
	var env *testEnv

	BeforeEach(func(ctx SpecContext) {
		env = newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.settle(ctx)
		Expect(env.policy(ctx).Finalizers).To(ConsistOf(labels.RemovalFinalizer))
		Expect(admin.Delete(ctx, env.policy(ctx))).To(Succeed())
		env.takeCalls()
	})

	It("stays until its stack is off all nodes, and its objects are deleted", func(ctx SpecContext) {
		before := len(daemonSets(ctx))
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(ConsistOf(HavePrefix("create Event policy.")), "no node was looked at")
		Expect(env.fleet.Basis()).To(And(HaveField("Decisions", BeNil()), HaveField("KeepNodes", false),
			HaveField("Removal", HaveValue(Equal(fleet.Removal{RuntimeClass: "nvidia"})))))

		env.setRemoval(removal.Step{Action: removal.Hold, Message: held})
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf("apply DaemonSet "+cleanupName, "update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Removing"))
		Expect(message(policy, v1.ConditionReady)).To(Equal("removing the stack: 1 of 1 nodes left; a: " + held))
		Expect(policy.Status.Nodes).To(ConsistOf(And(HaveField("Name", "a"), HaveField("Reason", "RemovalHeld"),
			HaveField("Message", held))))
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(daemonSets(ctx)).To(HaveLen(before + 1))

		env.setRemoval(removal.Step{Action: removal.Done})
		env.pass(ctx, statusInterval)
		Expect(daemonSets(ctx)).To(BeEmpty())
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
		Expect(policyExists(ctx)).To(BeTrue())
		env.takeCalls()
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf("patch ClusterPolicy policy"))
		Expect(policyExists(ctx)).To(BeFalse())
	})

	It("may be forced later", func(ctx SpecContext) {
		env.pass(ctx, time.Second)
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Removal = &v1.RemovalSpec{Force: new(true)} })
		env.pass(ctx, time.Second)
		Expect(env.fleet.Basis().Removal.Force).To(BeTrue())
	})

	It("is removed at once if the garbage collector has orphaned its objects", func(ctx SpecContext) {
		orphanDaemonSets(ctx)
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(ConsistOf("patch ClusterPolicy policy"))
		Expect(policyExists(ctx)).To(BeFalse())
		Expect(env.fleet.Basis()).To(HaveField("KeepNodes", true))
		Expect(daemonSets(ctx)).NotTo(BeEmpty())
	})

	DescribeTable("stays if a call fails once", func(ctx SpecContext, op string) {
		env.pass(ctx, time.Second)
		env.setRemoval(removal.Step{Action: removal.Done})
		failed := env.failOnce(op, 1)
		for range 3 {
			_, _ = env.reconcileAfter(ctx, 5*time.Second)
			if failed().op != "" {
				break
			}
		}
		Expect(policyExists(ctx)).To(BeTrue())
		for range 3 {
			_, err := env.reconcileAfter(ctx, 10*time.Second)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(policyExists(ctx)).To(BeFalse())
		Expect(daemonSets(ctx)).To(BeEmpty())
	},
		Entry(nil, "cached list DaemonSet"),
		Entry(nil, "cached get ConfigMap"),
		Entry(nil, "delete DaemonSet"),
		Entry(nil, "patch ClusterPolicy"),
	)
})

var _ = Describe("A policy whose finalizer cannot be added", func() {
	It("is not applied until it can", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.failOnce("patch ClusterPolicy", 1)
		_, err := env.reconcileAfter(ctx, 0)
		Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring("adding the finalizer of policy"))))
		Expect(env.fleet.Basis()).To(BeNil(), "no node is written")
		Expect(daemonSets(ctx)).To(BeEmpty())
		env.settle(ctx)
		Expect(env.policy(ctx).Finalizers).To(ConsistOf(labels.RemovalFinalizer))
	})

	It("is paused: it gets no finalizer, and is deleted with its objects", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{Paused: new(true)})
		env.pass(ctx, 0)
		Expect(env.policy(ctx).Finalizers).To(BeEmpty())
		Expect(admin.Delete(ctx, env.policy(ctx), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Expect(policyExists(ctx)).To(BeFalse())
	})
})
