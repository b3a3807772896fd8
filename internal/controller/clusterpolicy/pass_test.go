package clusterpolicy

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

var _ = Describe("A pass without a policy", func() {
	It("publishes that there is none, and writes nothing", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		Expect(b.pass(ctx, 0)).To(BeZero())
		Expect(b.writes()).To(BeEmpty())
		Expect(b.fleet.Basis()).To(And(HaveField("Policy", BeNil()), HaveField("Decisions", BeNil())))
		Expect(b.fleet.Published()).To(Receive())
	})

	It("gives up the labels of the namespace", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		b.settle(ctx)
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(labels.PodSecurity()[0], labels.PodSecurityPrivileged))
		Expect(admin.Delete(ctx, b.policy(ctx))).To(Succeed())
		b.pass(ctx, time.Second)
		Expect(b.writes()).To(ConsistOf("apply Namespace " + namespace))
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
		removeStack(ctx)
		b.pass(ctx, time.Second)
		Expect(b.taken()).To(ConsistOf(call{what: "cached list ClusterPolicy"}, call{what: "cached list DaemonSet"},
			call{what: "cached get CustomResourceDefinition", name: "clusterpolicies.nvidia.com"}), "nothing but the caches is read")
	})

	It("puts back the labels of the namespace that an administrator had set", func(ctx SpecContext) {
		enforce, warn := labels.PodSecurity()[0], labels.PodSecurity()[2]
		home := &corev1.Namespace{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
		home.Labels[enforce], home.Labels[warn] = "baseline", labels.PodSecurityPrivileged
		Expect(admin.Update(ctx, home, client.FieldOwner("kubectl-edit"))).To(Succeed())
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		b.settle(ctx)
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(enforce, labels.PodSecurityPrivileged))

		Expect(admin.Delete(ctx, b.policy(ctx))).To(Succeed())
		failed := b.failOnce("patch Namespace", 1)
		_, err := b.after(ctx, time.Second)
		Expect(failed().name).To(Equal(namespace))
		Expect(err).To(MatchError(errRefused))
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(enforce, labels.PodSecurityPrivileged), "it is tried again")
		b.pass(ctx, time.Second)
		Expect(namespaceLabels(ctx)).To(And(HaveKeyWithValue(enforce, "baseline"), HaveKeyWithValue(warn, labels.PodSecurityPrivileged),
			Not(HaveKey(labels.PodSecurity()[1]))))
		Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, home)).To(Succeed())
		Expect(home.Annotations).NotTo(HaveKey(labels.PodSecurityBefore))
		b.taken()
		b.pass(ctx, time.Second)
		Expect(b.writes()).To(BeEmpty())
	})

	It("has nodes keep what they have while DaemonSets run on", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		b.settle(ctx)
		Expect(admin.Delete(ctx, b.policy(ctx), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		b.pass(ctx, time.Second)
		Expect(b.fleet.Basis()).To(And(HaveField("Decisions", BeNil()), HaveField("KeepNodes", true)), "it is being deleted")
		leave(ctx)
		b.pass(ctx, time.Second)
		Expect(b.fleet.Basis()).To(HaveField("KeepNodes", true))
		Expect(namespaceLabels(ctx)).To(HaveKeyWithValue(labels.PodSecurity()[0], labels.PodSecurityPrivileged))
		Expect(b.writes()).To(BeEmpty())

		removeStack(ctx)
		b.pass(ctx, time.Second)
		Expect(b.fleet.Basis()).To(And(HaveField("Decisions", BeNil()), HaveField("KeepNodes", false)))
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
	})

	It("publishes nothing before it knows whether DaemonSets were left", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		before := b.fleet.Basis()
		Expect(admin.Delete(ctx, b.policy(ctx))).To(Succeed())
		b.answers(func(_ context.Context, made call) error {
			if made.what == "live list DaemonSet" {
				return errRefused
			}
			return nil
		})
		_, err := b.after(ctx, time.Second)
		Expect(err).To(MatchError(errRefused))
		Expect(b.fleet.Basis()).To(BeIdenticalTo(before))
		b.answers(nil)
		b.pass(ctx, time.Second)
		Expect(b.fleet.Basis()).To(HaveField("Decisions", BeNil()))
	})
})

// leave is the garbage collector after the deletion of a policy with --cascade=orphan.
func leave(ctx context.Context) {
	GinkgoHelper()
	for _, ds := range daemonSets(ctx) {
		ds.OwnerReferences = nil
		Expect(admin.Update(ctx, ds)).To(Succeed())
	}
	policy := named(ctx, "policy")
	policy.Finalizers = nil
	Expect(admin.Update(ctx, policy)).To(Succeed())
}

var _ = Describe("A pass before all nodes are known", func() {
	It("writes and publishes nothing, not even a status", func(ctx SpecContext) {
		b := newBed()
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		Expect(b.pass(ctx, 0)).To(BeZero(), "the fleet has an event when it is hydrated")
		Expect(b.taken()).To(ConsistOf(call{what: "cached list ClusterPolicy"}))
		Expect(b.fleet.Basis()).To(BeNil())
		Expect(b.policy(ctx).Status.Conditions).To(BeEmpty())
	})
})

var _ = Describe("A new policy", func() {
	It("is published before it is applied, and what pods refer to comes first", func(ctx SpecContext) {
		b := newBed(gpuNode("a"), migNode("b"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{PSA: &v1.PSASpec{Enabled: new(true)}})
		uid := b.policy(ctx).UID
		b.answers(func(_ context.Context, made call) error {
			if made.isWrite() {
				defer GinkgoRecover()
				Expect(b.fleet.Basis()).To(HaveField("Policy.UID", uid), "%s", made)
			}
			return nil
		})
		Expect(b.pass(ctx, 0)).To(Equal(2 * time.Second))
		var before, last []string
		for _, write := range b.writes() {
			Expect(write).To(HavePrefix("apply "))
			if strings.HasPrefix(write, "apply DaemonSet ") || strings.HasPrefix(write, "apply Service ") {
				last = append(last, write)
				continue
			}
			Expect(last).To(BeEmpty(), "%s comes after those that need it", write)
			before = append(before, write)
		}
		Expect(before).To(ConsistOf(
			"apply Namespace gpu-operator", "apply ConfigMap "+clientsName, "apply ConfigMap default-mig-parted-config",
			"apply RuntimeClass nvidia", "apply RuntimeClass nvidia-cdi", "apply RuntimeClass nvidia-legacy",
		))
		Expect(last).To(ConsistOf(
			"apply Service gpu-operator", "apply Service nvidia-dcgm-exporter",
			"apply DaemonSet gpu-feature-discovery", "apply DaemonSet nvidia-container-toolkit-daemonset",
			"apply DaemonSet nvidia-dcgm-exporter", "apply DaemonSet nvidia-device-plugin-daemonset",
			"apply DaemonSet nvidia-driver-daemonset", "apply DaemonSet nvidia-operator-validator",
			"apply DaemonSet nvidia-mig-manager",
		))
	})

	It("has its status once all nodes are assessed by it", func(ctx SpecContext) {
		b := newBed(gpuNode("a"), gpuNode("b"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.pass(ctx, 0)
		Expect(b.pass(ctx, time.Second)).To(BeNumerically("<=", 2*time.Second), "the DaemonSets are there now")
		Expect(b.policy(ctx).Status.Conditions).To(BeEmpty())
		b.assess(ctx)
		Expect(b.pass(ctx, 0)).To(BeZero())
		policy := b.policy(ctx)
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False OperandNotReady"), "no DaemonSet is rolled out")
		b.roll(ctx)
		b.pass(ctx, longer)
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
		b.taken()
		Expect(b.pass(ctx, longer)).To(BeZero())
		Expect(b.writes()).To(BeEmpty())
	})

	It("reports that nodes are being assessed when that takes longer", func(ctx SpecContext) {
		b := newBed(gpuNode("a"), gpuNode("b"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.pass(ctx, 0)
		b.pass(ctx, time.Second)
		b.taken()
		Expect(b.pass(ctx, 1999*time.Millisecond)).To(Equal(time.Millisecond), "the basis with the DaemonSets is of the second pass")
		Expect(b.writes()).To(BeEmpty())
		b.pass(ctx, time.Millisecond)
		Expect(b.writes()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Assessing"))
		Expect(condition(policy, v1.ConditionProgressing)).To(Equal("True Assessing"))
		Expect(policy.Status.ObservedGeneration).To(BeZero())
	})
})

var _ = Describe("An edit of the spec", func() {
	It("is reported as being assessed after Timing.Sweep, with the old generation", func(ctx SpecContext) {
		b := newBed(gpuNode("a"), gpuNode("b"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.DevicePlugin = &v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "FAIL_ON_INIT_ERROR", Value: "false"}}}}
		})
		b.pass(ctx, longer)
		Expect(b.writes()).To(ConsistOf(record, "apply DaemonSet "+pluginName))
		b.pass(ctx, time.Second)
		b.pass(ctx, time.Second)
		Expect(b.writes()).To(BeEmpty())
		b.pass(ctx, time.Second)
		Expect(b.writes()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionProgressing)).To(Equal("True Assessing"))
		Expect(message(policy, v1.ConditionProgressing)).To(Equal("2 of 2 GPU nodes are still to be assessed"))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("True Reconciled"), "the old verdicts stand")
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation - 1))
		b.settle(ctx)
	})

	It("that changes nothing on nodes leaves Ready as it is", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		since := condition(b.policy(ctx), v1.ConditionReady)
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		for range 3 {
			b.pass(ctx, 500*time.Millisecond)
			Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal(since))
		}
		Expect(b.writes()).To(ConsistOf(record))
		b.assess(ctx)
		b.pass(ctx, 0)
		Expect(b.writes()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := b.policy(ctx)
		Expect(policy.Status.ObservedGeneration).To(Equal(int64(2)))
		Expect(condition(policy, v1.ConditionReady)).To(Equal(since))
		Expect(condition(policy, v1.ConditionProgressing)).To(HavePrefix("False"))
	})

	It("removes what it no longer asks for, and nothing else", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
		})
		b.pass(ctx, time.Second)
		Expect(b.writes()).To(ConsistOf(record, "delete DaemonSet "+exporterName, "delete Service "+exporterName))
		Expect(daemonSets(ctx)).To(HaveLen(5))
		b.settle(ctx)
	})

})

var _ = Describe("Beside the policy in force", func() {
	It("another one is ignored, until the first is deleted", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.create(ctx, "second", v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{Enabled: new(false)}})
		b.settle(ctx)
		second := named(ctx, "second")
		Expect(second.Status.State).To(Equal(v1.StateIgnored))
		Expect(condition(second, v1.ConditionReady)).To(Equal("False Ignored"))
		Expect(second.Status.ObservedGeneration).To(Equal(second.Generation))
		Expect(daemonSet(ctx, exporterName)).NotTo(BeNil(), "the spec of the first counts")

		Expect(admin.Delete(ctx, b.policy(ctx))).To(Succeed())
		b.pass(ctx, longer)
		Expect(b.fleet.Basis().Policy.Name).To(Equal("second"))
		Expect(b.writes()).To(BeEmpty(), "the objects are still those of the first")
		b.assess(ctx)
		Expect(b.pass(ctx, 0)).To(BeZero(), "their deletion is an event")
		Expect(message(named(ctx, "second"), v1.ConditionReady)).To(ContainSubstring("is still being removed with an earlier ClusterPolicy"))

		removeStack(ctx)
		b.pass(ctx, longer)
		Expect(daemonSets(ctx)).To(HaveLen(5))
		for _, ds := range daemonSets(ctx) {
			Expect(metav1.GetControllerOf(ds).UID).To(Equal(second.UID), ds.Name)
		}
	})

	It("one that is being deleted is none", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", Finalizers: []string{"example.com/hold"}}}
		Expect(admin.Create(ctx, policy)).To(Succeed())
		Expect(admin.Delete(ctx, policy)).To(Succeed())
		b.pass(ctx, 0)
		Expect(b.writes()).To(BeEmpty())
		policy = b.policy(ctx)
		policy.Finalizers = nil
		Expect(admin.Update(ctx, policy)).To(Succeed())
	})
})

var _ = Describe("A policy that is paused", func() {
	It("has nothing written but its status, which counts what is pending", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
		b.pass(ctx, longer)
		b.assess(ctx)
		b.pass(ctx, longer)
		Expect(b.writes()).To(ConsistOf("update status ClusterPolicy policy"))
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Paused"))
		Expect(operandOf(policy, "device-plugin")).To(And(
			HaveField("Reason", v1.ReasonPaused),
			HaveField("Message", "1 of its objects are not as the spec says; spec.paused leaves them so"),
		))
		Expect(b.fleet.Basis().Paused()).To(BeTrue())
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = nil })
		b.settle(ctx)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
	})

	It("reports an object that cannot be compared", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
		b.pass(ctx, longer)
		b.assess(ctx)
		b.answers(func(_ context.Context, made call) error {
			if made == (call{what: "cached get DaemonSet", name: pluginName}) {
				return errRefused
			}
			return nil
		})
		b.pass(ctx, longer)
		Expect(operandOf(b.policy(ctx), "device-plugin")).To(And(
			HaveField("State", v1.OperandError), HaveField("Message", ContainSubstring(errRefused.Error())),
		))
		Expect(operandOf(b.policy(ctx), "driver").State).To(Equal(v1.OperandReady))
	})
})

func namespaceLabels(ctx context.Context) map[string]string {
	GinkgoHelper()
	found := &corev1.Namespace{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: namespace}, found)).To(Succeed())
	return found.Labels
}
