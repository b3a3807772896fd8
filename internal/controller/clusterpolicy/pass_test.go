package clusterpolicy

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var _ = Describe("A pass without a policy", func() {
	It("publishes a basis without a policy, and writes nothing", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		Expect(env.pass(ctx, 0)).To(BeZero())
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(env.fleet.Basis()).To(And(HaveField("Policy", BeNil()), HaveField("Decisions", BeNil())))
		Expect(env.fleet.Published()).To(Receive())
	})

	It("removes the labels of the namespace", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.settle(ctx)
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(labels.PodSecurity()[0], labels.PodSecurityPrivileged))
		forgetPolicy(ctx, env.policy(ctx))
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(ConsistOf("apply Namespace " + namespace))
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
		removeStack(ctx)
		env.pass(ctx, time.Second)
		Expect(env.takeCalls()).To(ConsistOf(call{op: "cached list ClusterPolicy"}, call{op: "cached list DaemonSet"},
			call{op: "cached get CustomResourceDefinition", name: "clusterpolicies.nvidia.com"},
			call{op: "cached list DaemonSet"}, call{op: "cached list CustomResourceDefinition"}), "only the caches are read")
	})

	It("restores the labels of the namespace that an administrator had set", func(ctx SpecContext) {
		enforce, warn := labels.PodSecurity()[0], labels.PodSecurity()[2]
		home := &corev1.Namespace{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
		home.Labels[enforce], home.Labels[warn] = "baseline", labels.PodSecurityPrivileged
		Expect(admin.Update(ctx, home, client.FieldOwner("kubectl-edit"))).To(Succeed())
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.settle(ctx)
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(enforce, labels.PodSecurityPrivileged))

		forgetPolicy(ctx, env.policy(ctx))
		failed := env.failOnce("patch Namespace", 1)
		_, err := env.reconcileAfter(ctx, time.Second)
		Expect(failed().name).To(Equal(namespace))
		Expect(err).To(MatchError(errInjected))
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(enforce, labels.PodSecurityPrivileged), "the patch is retried")
		env.pass(ctx, time.Second)
		Expect(namespaceLabels(ctx)).To(And(
			HaveKeyWithValue(enforce, "baseline"), HaveKeyWithValue(warn, labels.PodSecurityPrivileged),
			Not(HaveKey(labels.PodSecurity()[1])),
		))
		Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
		Expect(home.Annotations).NotTo(HaveKey(labels.PodSecurityBefore))
		env.takeCalls()
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(BeEmpty())
	})

	It("keeps the labels of nodes while orphaned DaemonSets run", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		env.settle(ctx)
		Expect(admin.Delete(ctx, env.policy(ctx), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		env.pass(ctx, time.Second)
		Expect(env.fleet.Basis()).To(And(HaveField("Decisions", BeNil()), HaveField("KeepNodes", true)), "being deleted")
		orphanDaemonSets(ctx)
		env.pass(ctx, time.Second)
		Expect(env.fleet.Basis()).To(HaveField("KeepNodes", true))
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(labels.PodSecurity()[0], labels.PodSecurityPrivileged))
		Expect(env.takeWrites()).To(ConsistOf("patch ClusterPolicy policy"), "its finalizer")

		removeStack(ctx)
		env.pass(ctx, time.Second)
		Expect(env.fleet.Basis()).To(And(HaveField("Decisions", BeNil()), HaveField("KeepNodes", false)))
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
	})

	It("publishes nothing if the list of DaemonSets fails", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		before := env.fleet.Basis()
		forgetPolicy(ctx, env.policy(ctx))
		env.onCall(func(_ context.Context, c call) error {
			if c.op == "live list DaemonSet" {
				return errInjected
			}
			return nil
		})
		_, err := env.reconcileAfter(ctx, time.Second)
		Expect(err).To(MatchError(errInjected))
		Expect(env.fleet.Basis()).To(BeIdenticalTo(before))
		env.onCall(nil)
		env.pass(ctx, time.Second)
		Expect(env.fleet.Basis()).To(HaveField("Decisions", BeNil()))
	})
})

// orphanDaemonSets acts as the garbage collector after the deletion of a policy with --cascade=orphan.
func orphanDaemonSets(ctx context.Context) {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		ds.OwnerReferences = nil
		Expect(admin.Update(ctx, ds)).To(Succeed())
	}
	policy := &v1.ClusterPolicy{}
	if err := admin.Get(ctx, client.ObjectKey{Name: "policy"}, policy); apierrors.IsNotFound(err) {
		return
	}
	policy.Finalizers = slices.DeleteFunc(policy.Finalizers, func(finalizer string) bool {
		return finalizer == metav1.FinalizerOrphanDependents
	})
	Expect(admin.Update(ctx, policy)).To(Succeed())
}

var _ = Describe("A pass before the fleet is hydrated", func() {
	It("writes and publishes nothing, also no status", func(ctx SpecContext) {
		env := newEnv()
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		Expect(env.pass(ctx, 0)).To(BeZero(), "the fleet has an event when it is hydrated")
		Expect(env.takeCalls()).To(ConsistOf(call{op: "cached list ClusterPolicy"}))
		Expect(env.fleet.Basis()).To(BeNil())
		Expect(env.policy(ctx).Status.Conditions).To(BeEmpty())
	})
})

var _ = Describe("A new policy", func() {
	It("is published before it is applied, and objects that pods refer to are applied first", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"), migNode("b"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		uid := env.policy(ctx).UID
		env.onCall(func(_ context.Context, c call) error {
			if c.op == "patch ClusterPolicy" {
				defer GinkgoRecover()
				Expect(env.fleet.Basis()).To(BeNil(), "the finalizer is added before nodes are written")
			} else if c.isWrite() {
				defer GinkgoRecover()
				Expect(env.fleet.Basis()).To(HaveField("Policy.UID", uid), "%s", c)
			}
			return nil
		})
		Expect(env.pass(ctx, 0)).To(Equal(2 * time.Second))
		var first, second []string
		writes := env.takeWrites()
		Expect(writes[0]).To(Equal("patch ClusterPolicy policy"), "its finalizer")
		for _, write := range writes[1:] {
			Expect(write).To(HavePrefix("apply "))
			if strings.HasPrefix(write, "apply DaemonSet ") || strings.HasPrefix(write, "apply Service ") {
				second = append(second, write)
				continue
			}
			Expect(second).To(BeEmpty(), "%s must be in the first round", write)
			first = append(first, write)
		}
		Expect(first).To(ConsistOf(
			"apply Namespace gpu-operator", "apply ConfigMap "+clientsName, "apply ConfigMap default-mig-parted-config",
			"apply RuntimeClass nvidia", "apply RuntimeClass nvidia-cdi", "apply RuntimeClass nvidia-legacy",
		))
		Expect(second).To(ConsistOf(
			"apply Service gpu-operator", "apply Service nvidia-dcgm-exporter",
			"apply DaemonSet gpu-feature-discovery", "apply DaemonSet nvidia-container-toolkit-daemonset",
			"apply DaemonSet nvidia-dcgm-exporter", "apply DaemonSet nvidia-device-plugin-daemonset",
			"apply DaemonSet nvidia-driver-daemonset", "apply DaemonSet nvidia-operator-validator",
			"apply DaemonSet nvidia-mig-manager",
		))
	})

	It("has a status once all nodes are assessed by its basis", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"), gpuNode("b"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.pass(ctx, 0)
		Expect(env.pass(ctx, time.Second)).To(BeNumerically("<=", 2*time.Second), "a basis with the DaemonSets is published")
		Expect(env.policy(ctx).Status.Conditions).To(BeEmpty())
		env.assessNodes(ctx)
		Expect(env.pass(ctx, 0)).To(BeZero())
		policy := env.policy(ctx)
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False OperandNotReady"), "no DaemonSet has been rolled out")
		env.rollOut(ctx)
		env.pass(ctx, statusInterval)
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
		env.takeCalls()
		Expect(env.pass(ctx, statusInterval)).To(BeZero())
		Expect(env.takeWrites()).To(BeEmpty())
	})

	It("reports that nodes are still being assessed after Timing.StatusDelay", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"), gpuNode("b"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.pass(ctx, 0)
		env.pass(ctx, time.Second)
		env.takeCalls()
		Expect(env.pass(ctx, 1999*time.Millisecond)).To(Equal(time.Millisecond), "counted from the basis of the second pass")
		Expect(env.takeWrites()).To(BeEmpty())
		env.pass(ctx, time.Millisecond)
		Expect(env.takeWrites()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Assessing"))
		Expect(condition(policy, v1.ConditionProgressing)).To(Equal("True Assessing"))
		Expect(policy.Status.ObservedGeneration).To(BeZero())
	})
})

var _ = Describe("A restart of the operator", func() {
	It("leaves a policy Stalled whose spec stays wrong, also before the nodes are assessed", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"), gpuNode("b"))
		pool := func(name string, selector v1.NodePoolSelector) v1.NodePoolSpec {
			return v1.NodePoolSpec{Name: name, NodeSelector: selector, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyNone}}
		}
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{
			pool("wide", v1.NodePoolSelector{"example.com/pool": "a"}),
			pool("narrow", v1.NodePoolSelector{"example.com/pool": "a", "example.com/zone": "1"}),
		}})
		env.converge(ctx)
		Expect(condition(env.policy(ctx), v1.ConditionStalled)).To(Equal("True InvalidSpec"))
		env.forgetNodes()
		env.pass(ctx, statusInterval)
		env.pass(ctx, statusInterval)
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionProgressing)).To(Equal("True Assessing"))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False InvalidSpec"))
		Expect(condition(policy, v1.ConditionStalled)).To(Equal("True InvalidSpec"))
	})
})

var _ = Describe("An edit of the spec", func() {
	It("is reported as being assessed after Timing.StatusDelay, with the old generation", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"), gpuNode("b"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.DevicePlugin = &v1.DevicePluginSpec{
				ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "FAIL_ON_INIT_ERROR", Value: "false"}}},
			}
		})
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf(specRecordWrite, "apply DaemonSet "+pluginName))
		env.pass(ctx, time.Second)
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(BeEmpty())
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionProgressing)).To(Equal("True Assessing"))
		Expect(message(policy, v1.ConditionProgressing)).To(
			Equal("2 of 2 GPU nodes are not assessed against the current spec yet"))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("True Reconciled"), "the old verdicts are kept")
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation - 1))
		env.settle(ctx)
	})

	It("is not done while an object was just applied", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: exporterName}}
		Expect(admin.Delete(ctx, service)).To(Succeed())
		env.pass(ctx, statusInterval)
		Expect(operandOf(env.policy(ctx), "dcgm-exporter")).To(And(
			HaveField("State", v1.OperandProgressing), HaveField("Reason", v1.ReasonRollingOut)))
		env.settle(ctx)
		Expect(operandOf(env.policy(ctx), "dcgm-exporter")).To(HaveField("State", v1.OperandReady))
	})

	It("that changes no object does not change Ready", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		since := condition(env.policy(ctx), v1.ConditionReady)
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		for range 3 {
			env.pass(ctx, 500*time.Millisecond)
			Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal(since))
		}
		Expect(env.takeWrites()).To(ConsistOf(specRecordWrite))
		env.assessNodes(ctx)
		env.pass(ctx, 0)
		Expect(env.takeWrites()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(policy.Status.ObservedGeneration).To(Equal(int64(2)))
		Expect(condition(policy, v1.ConditionReady)).To(Equal(since))
		Expect(condition(policy, v1.ConditionProgressing)).To(HavePrefix("False"))
	})

	It("that disables an operand deletes its objects, and no others", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
		})
		env.pass(ctx, time.Second)
		Expect(env.takeWrites()).To(ConsistOf(
			specRecordWrite, "delete DaemonSet "+exporterName, "delete Service "+exporterName,
		))
		Expect(daemonSets(ctx)).To(HaveLen(5))
		env.settle(ctx)
	})

})

var _ = Describe("A second policy", func() {
	It("is ignored until the first is deleted", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.createPolicy(ctx, "second", v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{Enabled: new(false)}})
		env.settle(ctx)
		second := getPolicy(ctx, "second")
		Expect(second.Status.State).To(Equal(v1.StateIgnored))
		Expect(condition(second, v1.ConditionReady)).To(Equal("False Ignored"))
		Expect(second.Status.ObservedGeneration).To(Equal(second.Generation))
		Expect(daemonSet(ctx, exporterName)).NotTo(BeNil(), "the spec of the first policy applies")

		Expect(admin.Delete(ctx, env.policy(ctx))).To(Succeed())
		env.pass(ctx, statusInterval)
		Expect(env.fleet.Basis().Policy.Name).To(Equal("second"))
		Expect(env.takeWrites()).To(ConsistOf("patch ClusterPolicy policy", "patch ClusterPolicy second"),
			"the finalizers: the first policy still owns the objects")
		env.assessNodes(ctx)
		Expect(env.pass(ctx, 0)).To(BeZero(), "deletions of the objects are events")
		Expect(message(getPolicy(ctx, "second"), v1.ConditionReady)).To(
			ContainSubstring("is still being deleted with an earlier ClusterPolicy"))

		removeStack(ctx)
		env.pass(ctx, statusInterval)
		Expect(daemonSets(ctx)).To(HaveLen(5))
		for _, ds := range daemonSets(ctx) {
			Expect(metav1.GetControllerOf(ds).UID).To(Equal(second.UID), ds.Name)
		}
	})

	It("is not applied if it is the only one and being deleted", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", Finalizers: []string{"example.com/hold"}}}
		Expect(admin.Create(ctx, policy)).To(Succeed())
		Expect(admin.Delete(ctx, policy)).To(Succeed())
		env.pass(ctx, 0)
		Expect(env.takeWrites()).To(BeEmpty())
		policy = env.policy(ctx)
		policy.Finalizers = nil
		Expect(admin.Update(ctx, policy)).To(Succeed())
	})
})

var _ = Describe("A paused policy", func() {
	It("has only its status written, with the number of pending objects", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
		env.pass(ctx, statusInterval)
		env.assessNodes(ctx)
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Paused"))
		Expect(operandOf(policy, "device-plugin")).To(And(
			HaveField("Reason", v1.ReasonPaused),
			HaveField("Message", "1 of its objects differ from the spec and are not updated while spec.paused is true"),
		))
		Expect(env.fleet.Basis().Paused()).To(BeTrue())
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = nil })
		env.settle(ctx)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
	})

	It("reports an object that cannot be compared", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
		env.pass(ctx, statusInterval)
		env.assessNodes(ctx)
		env.onCall(func(_ context.Context, c call) error {
			if c == (call{op: "cached get DaemonSet", name: pluginName}) {
				return errInjected
			}
			return nil
		})
		env.pass(ctx, statusInterval)
		Expect(operandOf(env.policy(ctx), "device-plugin")).To(And(
			HaveField("State", v1.OperandError), HaveField("Message", ContainSubstring(errInjected.Error())),
		))
		Expect(operandOf(env.policy(ctx), "driver").State).To(Equal(v1.OperandReady))
	})
})

func namespaceLabels(ctx context.Context) map[string]string {
	GinkgoHelper()
	found := &corev1.Namespace{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, found)).To(Succeed())
	return found.Labels
}
