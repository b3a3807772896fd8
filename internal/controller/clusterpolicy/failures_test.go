package clusterpolicy

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// The specs of this container share a cluster in which all is well before each of them.
var _ = Describe("A call that fails once", Ordered, ContinueOnFailure, func() {
	var b *bed

	BeforeAll(func() { b = newBed(migNode("a")) })
	BeforeEach(func(ctx SpecContext) {
		b.answers(nil)
		b.restore(ctx)
		b.settle(ctx)
	})

	// The pass cannot go on after these.
	DescribeTable("while the cluster is observed", func(ctx SpecContext, what string) {
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		before := b.policy(ctx)
		failed := b.failOnce(what, 1)
		_, err := b.after(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(err).To(MatchError(errRefused))
		Expect(b.writes()).To(HaveEach(Or(HavePrefix("update status"), HavePrefix("create Event"))), "nothing is decided")
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errRefused.Error()))
		Expect(policy.Status.Operands).To(Equal(before.Status.Operands), "what was known stands")
		Expect(policy.Status.NodeSummary).To(Equal(before.Status.NodeSummary))
		b.pass(ctx, time.Second)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
	},
		Entry(nil, "cached list DaemonSet"),
		Entry(nil, "cached list CustomResourceDefinition"),
		Entry(nil, "reference get ValidatingAdmissionPolicyBinding"),
	)

	// Whether a write of the policy loses fields is not known then.
	DescribeTable("while it is found out whether the spec is whole", func(ctx SpecContext, what string) {
		b.edit(ctx, noExporter)
		before := b.policy(ctx)
		failed := b.failOnce(what, 1)
		_, err := b.after(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(err).To(MatchError(errRefused))
		Expect(b.writes()).To(BeEmpty())
		Expect(b.policy(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		b.pass(ctx, time.Second)
		Expect(daemonSet(ctx, exporterName)).To(BeNil(), "the spec is applied")
	},
		Entry(nil, "cached list Service"),
		Entry(nil, "live list ClusterPolicy"),
		Entry(nil, "live get CustomResourceDefinition"),
	)

	DescribeTable("beside the operands", func(ctx SpecContext, what string, nth int, prepare func(context.Context, *bed)) {
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		prepare(ctx, b)
		failed := b.failOnce(what, nth)
		_, err := b.after(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(err).To(MatchError(errRefused))
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil(), "all else is done")
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errRefused.Error()))
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		b.settle(ctx)
		Expect(b.reconciler.Applier.RetryAfter()).To(BeZero())
	},
		Entry(nil, "cached get CustomResourceDefinition", 1, nothing),
		Entry(nil, "live get CustomResourceDefinition", 1, forgetSchema),
		Entry(nil, "live get Namespace", 1, podSecurity),
		Entry(nil, "apply Namespace", 1, podSecurity),
		Entry(nil, "cached list ConfigMap", 1, nothing),
		Entry("cached list Service, by the prune", "cached list Service", 2, nothing),
		Entry(nil, "cached list RuntimeClass", 1, nothing),
		Entry("cached list DaemonSet, by the prune", "cached list DaemonSet", 2, nothing),
	)

	DescribeTable("of a deletion", func(ctx SpecContext, what string, off func(*v1.ClusterPolicySpec), kind client.Object) {
		b.edit(ctx, off)
		failed := b.failOnce(what, 1)
		_, err := b.after(ctx, longer)
		Expect(err).To(MatchError(And(ContainSubstring("removing what is no longer wanted"), ContainSubstring(failed().name))))
		b.taken()
		Expect(err).To(MatchError(errRefused))
		Expect(exists(ctx, kind, failed().name)).To(BeTrue())
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		_, err = b.after(ctx, 999*time.Millisecond)
		Expect(err).To(MatchError(errRefused), "the deletion is held back")
		Expect(b.taken()).NotTo(ContainElement(failed()))
		b.pass(ctx, time.Millisecond)
		Expect(exists(ctx, kind, failed().name)).To(BeFalse())
	},
		Entry(nil, "delete ConfigMap", noMIG, &corev1.ConfigMap{}),
		Entry(nil, "delete DaemonSet", noDriver, &appsv1.DaemonSet{}),
		Entry(nil, "delete Service", noExporter, &corev1.Service{}),
		Entry(nil, "delete RuntimeClass", noCDI, &nodev1.RuntimeClass{}),
	)

	DescribeTable("of an object", func(ctx SpecContext, what string, kind client.Object, name, of string) {
		Expect(remove(ctx, kind, name)).To(Succeed())
		var failed []string
		b.answers(func(_ context.Context, made call) error {
			if made != (call{what: what, name: name}) {
				return nil
			}
			failed = append(failed, made.String())
			return errRefused
		})
		Expect(b.pass(ctx, longer)).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*time.Second)), "an assessment or a retry is due")
		Expect(failed).To(HaveLen(1))
		b.roll(ctx)
		b.assess(ctx)
		if strings.HasPrefix(what, "cached ") {
			Expect(b.pass(ctx, 0)).To(Equal(2*time.Second), "a read of the cache is tried in each pass")
		} else {
			Expect(b.pass(ctx, 0)).To(Equal(time.Second), "the back-off of the object")
			Expect(failed).To(HaveLen(1), "the call is held back")
		}
		policy := b.policy(ctx)
		Expect(operandOf(policy, of)).To(And(
			HaveField("State", v1.OperandError), HaveField("Reason", v1.ReasonReconcileFailed),
			HaveField("Message", ContainSubstring(errRefused.Error())),
		))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		for _, other := range policy.Status.Operands {
			if other.Name != of {
				Expect(other.State).NotTo(Equal(v1.OperandError), other.Name)
			}
		}
		b.answers(nil)
		b.pass(ctx, 2*time.Second)
		Expect(exists(ctx, kind, name)).To(BeTrue())
		b.settle(ctx)
		Expect(b.reconciler.Applier.RetryAfter()).To(BeZero())
	},
		Entry(nil, "cached get ConfigMap", &corev1.ConfigMap{}, clientsName, "mig-manager"),
		Entry(nil, "live get ConfigMap", &corev1.ConfigMap{}, clientsName, "mig-manager"),
		Entry(nil, "apply ConfigMap", &corev1.ConfigMap{}, clientsName, "mig-manager"),
		Entry(nil, "cached get Service", &corev1.Service{}, exporterName, "dcgm-exporter"),
		Entry(nil, "live get Service", &corev1.Service{}, exporterName, "dcgm-exporter"),
		Entry(nil, "apply Service", &corev1.Service{}, exporterName, "dcgm-exporter"),
		Entry(nil, "cached get RuntimeClass", &nodev1.RuntimeClass{}, "nvidia-legacy", "runtime-classes"),
		Entry(nil, "live get RuntimeClass", &nodev1.RuntimeClass{}, "nvidia-legacy", "runtime-classes"),
		Entry(nil, "apply RuntimeClass", &nodev1.RuntimeClass{}, "nvidia-legacy", "runtime-classes"),
		Entry(nil, "cached get DaemonSet", &appsv1.DaemonSet{}, pluginName, "device-plugin"),
		Entry(nil, "live get DaemonSet", &appsv1.DaemonSet{}, pluginName, "device-plugin"),
		Entry(nil, "apply DaemonSet", &appsv1.DaemonSet{}, pluginName, "device-plugin"),
	)

	It("of a RuntimeClass holds back the operands that need it", func(ctx SpecContext) {
		Expect(remove(ctx, &nodev1.RuntimeClass{}, "nvidia")).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, driverName))).To(Succeed())
		b.failOnce("apply RuntimeClass", 1)
		b.pass(ctx, longer)
		Expect(daemonSet(ctx, pluginName)).To(BeNil())
		Expect(daemonSet(ctx, driverName)).NotTo(BeNil(), "it needs none")
		Expect(daemonSet(ctx, exporterName)).NotTo(BeNil(), "nothing is removed that is merely held back")
		b.report(ctx)
		Expect(operandOf(b.policy(ctx), "device-plugin")).To(And(
			HaveField("State", v1.OperandWaiting), HaveField("Reason", v1.ReasonWaitingForOperand),
		))
	})

	It("of a new DaemonSet keeps the one that it replaces", func(ctx SpecContext) {
		old := daemonSet(ctx, driverName).Name
		b.upgrade("22.04")
		failed := b.failOnce("apply DaemonSet", 1)
		b.pass(ctx, longer)
		Expect(failed().name).To(HavePrefix("nvidia-driver-daemonset-ubuntu22.04"))
		Expect(daemonSet(ctx, old)).NotTo(BeNil())
		b.pass(ctx, time.Second)
		Expect(daemonSet(ctx, failed().name)).NotTo(BeNil())
		Expect(daemonSet(ctx, old)).To(BeNil())
		b.upgrade("24.04")
	})

	DescribeTable("of who has the name of the driver's DaemonSet holds back the driver", func(ctx SpecContext, what string) {
		Expect(admin.Delete(ctx, daemonSet(ctx, driverName))).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		b.answers(func(_ context.Context, made call) error {
			if made.what != what || made.name != "" && made.name != driverName {
				return nil
			}
			return errRefused
		})
		_, err := b.after(ctx, longer)
		Expect(err).To(MatchError(errRefused), "so that it is tried again")
		Expect(daemonSet(ctx, driverName)).To(BeNil())
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil(), "all else is done")
		b.answers(nil)
		b.settle(ctx)
		Expect(daemonSet(ctx, driverName)).NotTo(BeNil())
	},
		Entry(nil, "live get DaemonSet"),
		Entry(nil, "live list Pod"),
	)

	It("of the removal of what others have added to a placement is tried again", func(ctx SpecContext) {
		ds := daemonSet(ctx, driverName)
		preferred := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "a", Operator: corev1.NodeSelectorOpExists},
		}}}}
		ds.Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = preferred
		Expect(admin.Update(ctx, ds, client.FieldOwner("somebody"))).To(Succeed())
		b.failOnce("patch DaemonSet", 1)
		b.pass(ctx, longer)
		Expect(daemonSet(ctx, driverName).Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution).To(Equal(preferred))
		Expect(b.reconciler.Applier.RetryAfter()).To(BeNumerically(">", 0))
		b.settle(ctx)
		Expect(daemonSet(ctx, driverName).Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution).To(BeEmpty())
	})

	It("of the list of policies is returned", func(ctx SpecContext) {
		b.failOnce("cached list ClusterPolicy", 1)
		_, err := b.after(ctx, longer)
		Expect(err).To(And(MatchError(errRefused), MatchError(ContainSubstring("listing ClusterPolicies"))))
		Expect(b.taken()).To(ConsistOf(call{what: "cached list ClusterPolicy"}))
		Expect(b.pass(ctx, time.Second)).To(BeZero())
	})

	It("of the labels that the namespace no longer needs is returned without a policy", func(ctx SpecContext) {
		podSecurity(ctx, b)
		b.settle(ctx)
		Expect(admin.Delete(ctx, b.policy(ctx))).To(Succeed())
		b.failOnce("live get Namespace", 1)
		_, err := b.after(ctx, 0)
		Expect(err).To(MatchError(errRefused))
		b.pass(ctx, time.Second)
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
	})

	It("of an Event changes nothing else", func(ctx SpecContext) {
		b.answers(func(_ context.Context, made call) error {
			if made.what == "create Event" || made.what == "cached list DaemonSet" {
				return errRefused
			}
			return nil
		})
		_, err := b.after(ctx, longer)
		Expect(err).To(MatchError(ContainSubstring("listing DaemonSets")))
		Expect(b.writes()).To(HaveExactElements(HavePrefix("create Event policy."), Equal("update status ClusterPolicy policy")))
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
	})

	It("of the list of Events is repeated when the next look is due", func(ctx SpecContext) {
		b.refusePods(ctx, pluginName)
		b.pass(ctx, 0)
		b.failOnce("live list Event", 1)
		Expect(b.pass(ctx, 5*time.Second)).To(Equal(10 * time.Second))
		Expect(b.fleet.Basis().Stack.CreateFailures).To(BeEmpty())
		Expect(condition(b.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"))
		b.pass(ctx, 10*time.Second)
		Expect(b.fleet.Basis().Stack.CreateFailures).To(HaveKey(pluginName))
	})

	It("of the status is returned", func(ctx SpecContext) {
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		b.pass(ctx, longer)
		b.assess(ctx)
		b.failOnce("update status ClusterPolicy", 1)
		_, err := b.after(ctx, 0)
		Expect(err).To(And(MatchError(errRefused), MatchError(ContainSubstring("writing status of ClusterPolicy policy"))))
		b.pass(ctx, 0)
		Expect(b.policy(ctx).Status.ObservedGeneration).To(Equal(b.policy(ctx).Generation))
	})

	It("of the status by a conflict is repeated when the cache shows the change", func(ctx SpecContext) {
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		b.pass(ctx, longer)
		b.assess(ctx)
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "clusterpolicies"}, "policy", fmt.Errorf("changed"))
		b.answers(func(_ context.Context, made call) error {
			if made.what == "update status ClusterPolicy" {
				return conflict
			}
			return nil
		})
		Expect(b.pass(ctx, 0)).To(Equal(time.Second))
		_, err := b.after(ctx, 0)
		Expect(err).To(MatchError(conflict), "one more from the same version backs off as an error does")
	})

	It("of the status of a policy that is gone ends the writes until the cache shows it", func(ctx SpecContext) {
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		b.pass(ctx, longer)
		b.assess(ctx)
		b.answers(func(_ context.Context, made call) error {
			if made.what == "update status ClusterPolicy" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterpolicies"}, "policy")
			}
			return nil
		})
		_, err := b.after(ctx, 0)
		Expect(err).To(MatchError(apierrors.IsNotFound, "NotFound"))
		b.taken()
		Expect(b.pass(ctx, 0)).To(Equal(5 * time.Second))
		Expect(b.taken()).To(HaveEach(WithTransform(func(made call) string { return made.what }, HavePrefix("cached "))))
		b.answers(nil)
		b.pass(ctx, 6*time.Second)
		Expect(b.policy(ctx).Status.ObservedGeneration).To(Equal(b.policy(ctx).Generation))
	})

	It("of the status of an ignored policy is returned, and the one in force has its own", func(ctx SpecContext) {
		b.create(ctx, "second", v1.ClusterPolicySpec{})
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		refuse := func(_ context.Context, made call) error {
			if made == (call{what: "update status ClusterPolicy", name: "second"}) {
				return errRefused
			}
			return nil
		}
		b.answers(refuse)
		_, err := b.after(ctx, longer)
		Expect(err).To(MatchError(errRefused), "also while nodes are being assessed")
		Expect(b.policy(ctx).Status.ObservedGeneration).NotTo(Equal(b.policy(ctx).Generation))
		b.assess(ctx)
		_, err = b.after(ctx, longer)
		Expect(err).To(MatchError(errRefused))
		Expect(b.policy(ctx).Status.ObservedGeneration).To(Equal(b.policy(ctx).Generation))
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
		b.answers(nil)
		b.pass(ctx, longer)
		Expect(named(ctx, "second").Status.State).To(Equal(v1.StateIgnored))
		Expect(admin.Delete(ctx, named(ctx, "second"))).To(Succeed())
	})
})

func nothing(context.Context, *bed) {}

// forgetSchema has the definition be read anew, as after a restart.
func forgetSchema(_ context.Context, b *bed) {
	b.reconciler.Schema = &observe.Schema{Cached: b.reconciler.Schema.Cached, Live: b.reconciler.Schema.Live}
}

func podSecurity(ctx context.Context, b *bed) {
	GinkgoHelper()
	b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.PSA = &v1.PSASpec{Enabled: new(true)} })
}

func noDriver(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(false)} }

func noMIG(spec *v1.ClusterPolicySpec) { spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)} }

func noExporter(spec *v1.ClusterPolicySpec) {
	spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
}

func noCDI(spec *v1.ClusterPolicySpec) { spec.CDI = &v1.CDISpec{Enabled: new(false)} }

// restore makes the policy as it was before the last spec, and anew where that deleted it.
func (b *bed) restore(ctx context.Context) {
	GinkgoHelper()
	found := &v1.ClusterPolicyList{}
	Expect(admin.List(ctx, found)).To(Succeed())
	if len(found.Items) == 0 {
		removeStack(ctx)
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		return
	}
	b.edit(ctx, func(spec *v1.ClusterPolicySpec) { *spec = v1.ClusterPolicySpec{} })
}

// remove deletes an object of the stack.
func remove(ctx context.Context, kind client.Object, name string) error {
	kind.SetName(name)
	kind.SetNamespace(namespace)
	if _, is := kind.(*nodev1.RuntimeClass); is {
		kind.SetNamespace("")
	}
	return admin.Delete(ctx, kind)
}
