package clusterpolicy

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
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

// deletedPolicyOf returns a policy that is being deleted.
func deletedPolicyOf(spec v1.ClusterPolicySpec) *v1.ClusterPolicy {
	policy := policyOf(spec, 2)
	policy.Finalizers, policy.DeletionTimestamp = []string{labels.RemovalFinalizer}, new(metav1.Unix(1000, 0))
	return policy
}

// applied returns a DaemonSet of the policy, as the operator has applied it for an operand.
func applied(of operand.Name, name string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: renderedConfigMap(of, name).ObjectMeta}
	ds.UID, ds.Annotations = types.UID(name), map[string]string{labels.Digest: "1"}
	return ds
}

// The removal begins with an Event, cleans up the nodes that were looked at, and ends with the objects and the
// finalizer.
func TestARemoval(t *testing.T) {
	slots := &corev1.ConfigMap{ObjectMeta: namespaced(labels.UpgradeSlots)}
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	foreign := applied("driver", "foreign")
	foreign.OwnerReferences[0].UID = "another"
	u := newUnit(t, deletedPolicyOf(v1.ClusterPolicySpec{Removal: &v1.RemovalSpec{Force: new(true)}}), slots, home,
		applied("driver", driverName), applied("node-discovery", "discovery"), applied("unknown", "unknown"), foreign)
	u.hydrate(gpuNode("a"), gpuNode("b"))
	step := func(node string, step removal.Step) {
		u.Fleet.Set(&fleet.Entry{
			Facts: observe.Facts(gpuNode(node)), BasisVersion: u.Fleet.Basis().Version, Removal: &fleet.NodeRemoval{Step: step},
		})
	}
	policy := policyOf(v1.ClusterPolicySpec{}, 0)

	u.Expect(u.pass()).To(Equal(2*time.Second), "until both nodes were looked at")
	u.Expect(u.takeWrites()).To(ConsistOf(HavePrefix("create Event policy."), "delete DaemonSet discovery"))
	u.Expect(u.events()).To(ConsistOf(HavePrefix("Normal Removing: the stack is being removed from all nodes")))
	u.Expect(u.Fleet.Basis()).To(And(HaveField("Policy.UID", policyUID), HaveField("KeepNodes", false),
		HaveField("Removal", Equal(&fleet.Removal{Force: true, RuntimeClass: "nvidia"}))))
	u.Expect(u.metrics()).To(And(HaveKeyWithValue("reconciliation_has_nfd_labels", 1.0),
		HaveKeyWithValue("reconciliation_status", 0.0), HaveKeyWithValue("reconciliation_failed_total", 0.0)))
	u.clock.Step(time.Second)
	u.Expect(u.pass()).To(Equal(time.Second))
	u.Expect(u.takeWrites()).To(BeEmpty())

	step("a", removal.Step{Action: removal.Hold, Message: held})
	u.clock.Step(time.Second)
	u.Expect(u.pass()).To(BeZero())
	u.Expect(u.takeWrites()).To(ConsistOf("apply DaemonSet "+cleanupName, "update status ClusterPolicy policy"))
	u.Expect(u.get(policy)).To(Succeed())
	u.Expect(policy.Status.Namespace).To(Equal(namespace))
	u.Expect(message(policy, v1.ConditionReady)).To(HavePrefix("removing the stack: 2 of 2 nodes left; a: " + held))
	cleaner := &appsv1.DaemonSet{ObjectMeta: namespaced(cleanupName)}
	u.Expect(u.get(cleaner)).To(Succeed())
	u.Expect(cleaner.OwnerReferences).To(ConsistOf(And(HaveField("Name", "policy"), HaveField("UID", policyUID))))

	step("a", removal.Step{Action: removal.Done})
	step("b", removal.Step{Action: removal.Done})
	u.clock.Step(statusInterval)
	u.failOnce("delete ConfigMap", 1)
	_, err := u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.get(policy)).To(Succeed())
	u.Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errInjected.Error()))
	u.Expect(u.metrics()).To(HaveKeyWithValue("reconciliation_failed_total", 1.0))
	u.takeCalls()
	u.clock.Step(statusInterval)
	u.Expect(u.pass()).To(BeZero(), "deletions are events")
	u.Expect(u.takeWrites()).To(ConsistOf("delete ConfigMap "+labels.UpgradeSlots, "delete DaemonSet "+driverName,
		"delete DaemonSet unknown", "delete DaemonSet "+cleanupName, "update status ClusterPolicy policy"))
	u.failOnce("patch ClusterPolicy", 1)
	_, err = u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.onCall(nil)
	u.takeCalls()
	u.clock.Step(statusInterval)
	u.Expect(u.pass()).To(BeZero())
	u.Expect(u.takeWrites()).To(Equal([]string{"patch ClusterPolicy policy"}), "and no status")
	u.Expect(u.get(policy)).To(MatchError(apierrors.IsNotFound, "NotFound"))
	u.Expect(u.get(&appsv1.DaemonSet{ObjectMeta: namespaced("foreign")})).To(Succeed())
	u.Expect(u.deletedPolicy.until).To(Equal(u.clock.Now().Add(5*time.Second)), "the cache shows the policy for a moment")
}

// A removal that does not get on is reported at once if a call has failed, and after a moment if nodes were not seen.
func TestWhenARemovalIsReported(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		unseen int
		err    error
		want   time.Duration
	}{
		"all nodes are seen": {}, "unseen nodes": {unseen: 1, want: time.Second}, "a failure": {unseen: 1, err: errInjected},
	} {
		s := &scope{Reconciler: &Reconciler{}, now: now, unseen: test.unseen, err: test.err}
		s.Timing, s.basis = DefaultTiming(), &fleet.Basis{Since: now.Add(-time.Second)}
		NewWithT(t).Expect(s.removalStatusDelay()).To(Equal(test.want), name)
	}
}

// Whatever call fails, the pass fails, and the removal goes no further.
func TestFailuresOfARemoval(t *testing.T) {
	orphan := applied("driver", driverName)
	orphan.OwnerReferences = nil
	for _, test := range []struct {
		op     string
		nth    int
		seen   bool
		action removal.Action
		text   string
	}{
		{op: "live list DaemonSet", nth: 1, text: "listing DaemonSets that a deleted ClusterPolicy may have orphaned"},
		{op: "cached list DaemonSet", nth: 2, text: "listing DaemonSets"},
		{op: "cached list Service", nth: 1, text: "deleting the objects of the deleted ClusterPolicy: "},
		{op: "apply DaemonSet", nth: 1, seen: true, action: removal.Hold, text: "applying DaemonSet"},
		{op: "cached get ConfigMap", nth: 1, seen: true, action: removal.Done},
		{op: "live get Namespace", nth: 1, seen: true, action: removal.Done, text: "reading Namespace"},
		{op: "delete DaemonSet", nth: 1, seen: true, action: removal.Done, text: "deleting the objects of the deleted"},
	} {
		t.Run(test.op, func(t *testing.T) {
			u := newUnit(t, deletedPolicyOf(v1.ClusterPolicySpec{}), applied("driver", driverName))
			u.hydrate(gpuNode("a"))
			if test.seen {
				_, err := u.pass()
				u.Expect(err).NotTo(HaveOccurred())
				u.Fleet.Set(&fleet.Entry{Facts: observe.Facts(gpuNode("a")), BasisVersion: u.Fleet.Basis().Version,
					Removal: &fleet.NodeRemoval{Step: removal.Step{Action: test.action}}})
			}
			u.failOnce(test.op, test.nth)
			_, err := u.pass()
			u.Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring(test.text))))
			policy := policyOf(v1.ClusterPolicySpec{}, 0)
			u.Expect(u.get(policy)).To(Succeed())
			u.Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errInjected.Error()))
			u.Expect(u.takeWrites()).NotTo(ContainElement("patch ClusterPolicy policy"))
		})
	}
	u := newUnit(t, deletedPolicyOf(v1.ClusterPolicySpec{}), orphan)
	u.hydrate(gpuNode("a"))
	u.failOnce("patch ClusterPolicy", 1)
	_, err := u.pass()
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.Fleet.Basis()).To(HaveField("KeepNodes", true))
	u.Expect(u.Fleet.Basis().Removal).To(BeNil())
}
