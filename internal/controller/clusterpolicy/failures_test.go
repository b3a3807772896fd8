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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The specs of this container share a cluster, which is ready before each of them.
var _ = Describe("A call that fails once", Ordered, ContinueOnFailure, func() {
	var env *testEnv

	BeforeAll(func() { env = newEnv(migNode("a")) })
	BeforeEach(func(ctx SpecContext) {
		env.onCall(nil)
		env.resetPolicy(ctx)
		env.settle(ctx)
	})

	// The pass ends after these.
	DescribeTable("while the cluster is read", func(ctx SpecContext, op string) {
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		before := env.policy(ctx)
		failed := env.failOnce(op, 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(err).To(MatchError(errInjected))
		Expect(env.takeWrites()).To(HaveEach(Or(HavePrefix("update status"), HavePrefix("create Event"))),
			"nothing is applied")
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errInjected.Error()))
		Expect(policy.Status.Operands).To(Equal(before.Status.Operands), "the status of operands is kept")
		Expect(policy.Status.NodeSummary).To(Equal(before.Status.NodeSummary))
		env.pass(ctx, time.Second)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
	},
		Entry(nil, "cached list DaemonSet"),
		Entry(nil, "cached list CustomResourceDefinition"),
		Entry(nil, "reference get ValidatingAdmissionPolicyBinding"),
	)

	// A write of the policy might drop fields then.
	DescribeTable("while the spec is checked for missing fields", func(ctx SpecContext, op string) {
		env.editSpec(ctx, disableExporter)
		before := env.policy(ctx)
		failed := env.failOnce(op, 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(err).To(MatchError(errInjected))
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(env.policy(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		env.pass(ctx, time.Second)
		Expect(daemonSet(ctx, exporterName)).To(BeNil(), "the spec is applied")
	},
		Entry(nil, "cached list Service"),
		Entry(nil, "live list ClusterPolicy"),
		Entry(nil, "live get CustomResourceDefinition"),
	)

	DescribeTable("that concerns no single operand", func(
		ctx SpecContext, op string, nth int, prepare func(context.Context, *testEnv),
	) {
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		prepare(ctx, env)
		failed := env.failOnce(op, nth)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(err).To(MatchError(errInjected))
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil(), "the pass continues")
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		Expect(message(policy, v1.ConditionReady)).To(ContainSubstring(errInjected.Error()))
		Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		env.settle(ctx)
		Expect(env.reconciler.Applier.RetryAfter()).To(BeZero())
	},
		Entry(nil, "cached get CustomResourceDefinition", 1, noPreparation),
		Entry(nil, "live get CustomResourceDefinition", 1, resetSchema),
		Entry(nil, "live get Namespace", 1, enablePodSecurity),
		Entry(nil, "apply Namespace", 1, enablePodSecurity),
		Entry(nil, "cached list ConfigMap", 1, noPreparation),
		Entry(nil, "live list ConfigMap", 1, func(_ context.Context, env *testEnv) { env.reconciler.leftPruned = false }),
		Entry("cached list Service, while pruning", "cached list Service", 2, noPreparation),
		Entry(nil, "cached list RuntimeClass", 1, noPreparation),
		Entry("cached list DaemonSet, while pruning", "cached list DaemonSet", 2, noPreparation),
	)

	DescribeTable("while an object is pruned", func(
		ctx SpecContext, op string, off func(*v1.ClusterPolicySpec), kind client.Object,
	) {
		env.editSpec(ctx, off)
		failed := env.failOnce(op, 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(And(
			ContainSubstring("deleting objects that are no longer needed"), ContainSubstring(failed().name),
		)))
		env.takeCalls()
		Expect(err).To(MatchError(errInjected))
		Expect(exists(ctx, kind, failed().name)).To(BeTrue())
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		_, err = env.reconcileAfter(ctx, 999*time.Millisecond)
		Expect(err).To(MatchError(errInjected), "the deletion is in its back-off")
		Expect(env.takeCalls()).NotTo(ContainElement(failed()))
		env.pass(ctx, time.Millisecond)
		Expect(exists(ctx, kind, failed().name)).To(BeFalse())
	},
		Entry(nil, "delete ConfigMap", disableMIGManager, &corev1.ConfigMap{}),
		Entry(nil, "delete DaemonSet", disableDriver, &appsv1.DaemonSet{}),
		Entry(nil, "delete Service", disableExporter, &corev1.Service{}),
		Entry(nil, "delete RuntimeClass", disableCDI, &nodev1.RuntimeClass{}),
	)

	DescribeTable("while an object is applied", func(ctx SpecContext, op string, kind client.Object, name, of string) {
		Expect(deleteObject(ctx, kind, name)).To(Succeed())
		var failed []string
		env.onCall(func(_ context.Context, c call) error {
			if c != (call{op: op, name: name}) {
				return nil
			}
			failed = append(failed, c.String())
			return errInjected
		})
		Expect(env.pass(ctx, statusInterval)).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*time.Second)),
			"requeued for an assessment or a retry")
		Expect(failed).To(HaveLen(1))
		env.rollOut(ctx)
		env.assessNodes(ctx)
		if strings.HasPrefix(op, "cached ") {
			Expect(env.pass(ctx, 0)).To(Equal(2*time.Second), "reads of the cache have no back-off")
		} else {
			Expect(env.pass(ctx, 0)).To(Equal(time.Second), "the back-off of the object")
			Expect(failed).To(HaveLen(1), "the call is in its back-off")
		}
		policy := env.policy(ctx)
		Expect(operandOf(policy, of)).To(And(
			HaveField("State", v1.OperandError), HaveField("Reason", v1.ReasonReconcileFailed),
			HaveField("Message", ContainSubstring(errInjected.Error())),
		))
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		for _, other := range policy.Status.Operands {
			if other.Name != of {
				Expect(other.State).NotTo(Equal(v1.OperandError), other.Name)
			}
		}
		env.onCall(nil)
		env.pass(ctx, 2*time.Second)
		Expect(exists(ctx, kind, name)).To(BeTrue())
		env.settle(ctx)
		Expect(env.reconciler.Applier.RetryAfter()).To(BeZero())
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

	It("while a RuntimeClass is applied skips the operands that need it", func(ctx SpecContext) {
		Expect(deleteObject(ctx, &nodev1.RuntimeClass{}, "nvidia")).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, driverName))).To(Succeed())
		env.failOnce("apply RuntimeClass", 1)
		env.pass(ctx, statusInterval)
		Expect(daemonSet(ctx, pluginName)).To(BeNil())
		Expect(daemonSet(ctx, driverName)).NotTo(BeNil(), "it needs no RuntimeClass")
		Expect(daemonSet(ctx, exporterName)).NotTo(BeNil(), "a skipped operand keeps its objects")
		env.reportStatus(ctx)
		Expect(operandOf(env.policy(ctx), "device-plugin")).To(And(
			HaveField("State", v1.OperandWaiting), HaveField("Reason", v1.ReasonWaitingForOperand),
		))
	})

	It("while a new DaemonSet is applied keeps the one that it replaces", func(ctx SpecContext) {
		old := daemonSet(ctx, driverName).Name
		env.setOSVersion("22.04")
		failed := env.failOnce("apply DaemonSet", 1)
		env.pass(ctx, statusInterval)
		Expect(failed().name).To(HavePrefix("nvidia-driver-daemonset-ubuntu22.04"))
		Expect(daemonSet(ctx, old)).NotTo(BeNil())
		env.pass(ctx, time.Second)
		Expect(daemonSet(ctx, failed().name)).NotTo(BeNil())
		Expect(daemonSet(ctx, old)).To(BeNil())
		env.setOSVersion("24.04")
		// Without any DaemonSet, the next one has the plain name again.
		Expect(admin.Delete(ctx, daemonSet(ctx, failed().name))).To(Succeed())
	})

	DescribeTable("while the name of the driver's DaemonSet is looked up skips the driver", func(
		ctx SpecContext, op string,
	) {
		Expect(admin.Delete(ctx, daemonSet(ctx, driverName))).To(Succeed())
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		env.onCall(func(_ context.Context, c call) error {
			if c.op != op || c.name != "" && c.name != driverName {
				return nil
			}
			return errInjected
		})
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected), "so that it is retried")
		Expect(daemonSet(ctx, driverName)).To(BeNil())
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil(), "the pass continues")
		env.onCall(nil)
		env.settle(ctx)
		Expect(daemonSet(ctx, driverName)).NotTo(BeNil())
	},
		Entry(nil, "live get DaemonSet"),
		Entry(nil, "live list Pod"),
	)

	It("while pods are listed that another operator may have created keeps the driver", func(ctx SpecContext) {
		ds := daemonSet(ctx, driverName)
		ds.Status.UpdatedNumberScheduled = 0
		ds.Status.CurrentNumberScheduled = 1
		Expect(admin.Status().Update(ctx, ds)).To(Succeed())
		env.failOnce("cached list Pod", 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected), "so that it is retried")
		Expect(daemonSet(ctx, driverName)).NotTo(BeNil())
		env.settle(ctx)
	})

	It("while a placement is repaired is retried", func(ctx SpecContext) {
		preferences := func() []corev1.PreferredSchedulingTerm {
			affinity := daemonSet(ctx, driverName).Spec.Template.Spec.Affinity
			return affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		}
		ds := daemonSet(ctx, driverName)
		preferred := []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "a", Operator: corev1.NodeSelectorOpExists},
			}}},
		}
		ds.Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = preferred
		Expect(admin.Update(ctx, ds, client.FieldOwner("other"))).To(Succeed())
		env.failOnce("patch DaemonSet", 1)
		env.pass(ctx, statusInterval)
		Expect(preferences()).To(Equal(preferred))
		Expect(env.reconciler.Applier.RetryAfter()).To(BeNumerically(">", 0))
		env.settle(ctx)
		Expect(preferences()).To(BeEmpty())
	})

	It("while policies are listed is returned", func(ctx SpecContext) {
		env.failOnce("cached list ClusterPolicy", 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring("listing ClusterPolicies"))))
		Expect(env.takeCalls()).To(ConsistOf(call{op: "cached list ClusterPolicy"}))
		Expect(env.pass(ctx, time.Second)).To(BeZero())
	})

	It("while the labels of the namespace are removed is returned, without a policy", func(ctx SpecContext) {
		enablePodSecurity(ctx, env)
		env.settle(ctx)
		forgetPolicy(ctx, env.policy(ctx))
		env.failOnce("live get Namespace", 1)
		_, err := env.reconcileAfter(ctx, 0)
		Expect(err).To(MatchError(errInjected))
		env.pass(ctx, time.Second)
		Expect(namespaceLabels(ctx)).NotTo(HaveKey(labels.PodSecurity()[0]))
	})

	It("while an Event is created changes nothing else", func(ctx SpecContext) {
		env.onCall(func(_ context.Context, c call) error {
			if c.op == "create Event" || c.op == "cached list DaemonSet" {
				return errInjected
			}
			return nil
		})
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(ContainSubstring("listing DaemonSets")))
		Expect(env.takeWrites()).To(HaveExactElements(
			HavePrefix("create Event policy."), Equal("update status ClusterPolicy policy"),
		))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
	})

	It("while Events are listed is retried when the next list is due", func(ctx SpecContext) {
		env.failPodCreation(ctx, pluginName)
		env.pass(ctx, 0)
		env.failOnce("live list Event", 1)
		Expect(env.pass(ctx, 5*time.Second)).To(Equal(10 * time.Second))
		Expect(env.fleet.Basis().Stack.CreateFailures).To(BeEmpty())
		Expect(env.reconciler.failedReads).To(HaveLen(1), "it is logged")
		Expect(condition(env.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"))
		env.pass(ctx, 10*time.Second)
		Expect(env.fleet.Basis().Stack.CreateFailures).To(HaveKey(pluginName))
		Expect(env.reconciler.failedReads).To(BeEmpty())
	})

	It("while the status is written is returned", func(ctx SpecContext) {
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		env.pass(ctx, statusInterval)
		env.assessNodes(ctx)
		env.failOnce("update status ClusterPolicy", 1)
		_, err := env.reconcileAfter(ctx, 0)
		Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring("writing status of ClusterPolicy policy"))))
		env.pass(ctx, 0)
		Expect(env.policy(ctx).Status.ObservedGeneration).To(Equal(env.policy(ctx).Generation))
	})

	It("while the status is written is retried with the changed policy after a conflict", func(ctx SpecContext) {
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		env.pass(ctx, statusInterval)
		env.assessNodes(ctx)
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "clusterpolicies"}, "policy", fmt.Errorf("changed"))
		env.onCall(func(_ context.Context, c call) error {
			if c.op == "update status ClusterPolicy" {
				return conflict
			}
			return nil
		})
		Expect(env.pass(ctx, 0)).To(Equal(time.Second))
		_, err := env.reconcileAfter(ctx, 0)
		Expect(err).To(MatchError(conflict), "a second conflict with the same version has a back-off")
	})

	It("while the status of a deleted policy is written stops writes until the cache is current", func(ctx SpecContext) {
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		env.pass(ctx, statusInterval)
		env.assessNodes(ctx)
		env.onCall(func(_ context.Context, c call) error {
			if c.op == "update status ClusterPolicy" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterpolicies"}, "policy")
			}
			return nil
		})
		_, err := env.reconcileAfter(ctx, 0)
		Expect(err).To(MatchError(apierrors.IsNotFound, "NotFound"))
		env.takeCalls()
		Expect(env.pass(ctx, 0)).To(Equal(5 * time.Second))
		Expect(env.takeCalls()).To(HaveEach(WithTransform(func(c call) string { return c.op }, HavePrefix("cached "))))
		env.onCall(nil)
		env.pass(ctx, 6*time.Second)
		Expect(env.policy(ctx).Status.ObservedGeneration).To(Equal(env.policy(ctx).Generation))
	})

	It("while the status of an ignored policy is written is returned", func(ctx SpecContext) {
		env.createPolicy(ctx, "second", v1.ClusterPolicySpec{})
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(true)} })
		fail := func(_ context.Context, c call) error {
			if c == (call{op: "update status ClusterPolicy", name: "second"}) {
				return errInjected
			}
			return nil
		}
		env.onCall(fail)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected), "also while nodes are being assessed")
		Expect(env.policy(ctx).Status.ObservedGeneration).NotTo(Equal(env.policy(ctx).Generation))
		env.assessNodes(ctx)
		_, err = env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected))
		Expect(env.policy(ctx).Status.ObservedGeneration).To(Equal(env.policy(ctx).Generation))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
		env.onCall(nil)
		env.pass(ctx, statusInterval)
		Expect(getPolicy(ctx, "second").Status.State).To(Equal(v1.StateIgnored))
		Expect(admin.Delete(ctx, getPolicy(ctx, "second"))).To(Succeed())
	})
})

func noPreparation(context.Context, *testEnv) {}

// resetSchema makes the next pass read the CRD again, as after a restart.
func resetSchema(_ context.Context, env *testEnv) {
	before := env.reconciler.Schema
	env.reconciler.Schema = &observe.Schema{Definition: before.Definition, Cached: before.Cached, Live: before.Live}
}

func enablePodSecurity(ctx context.Context, env *testEnv) {
	GinkgoHelper()
	env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.PSA = &v1.PSASpec{Enabled: new(true)} })
}

func disableDriver(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(false)} }

func disableMIGManager(spec *v1.ClusterPolicySpec) {
	spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)}
}

func disableExporter(spec *v1.ClusterPolicySpec) {
	spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
}

func disableCDI(spec *v1.ClusterPolicySpec) { spec.CDI = &v1.CDISpec{Enabled: new(false)} }

// resetPolicy empties the spec of the policy, and creates the policy again if a spec has deleted it.
func (env *testEnv) resetPolicy(ctx context.Context) {
	GinkgoHelper()
	found := &v1.ClusterPolicyList{}
	Expect(admin.List(ctx, found)).To(Succeed())
	if len(found.Items) == 0 {
		removeStack(ctx)
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		return
	}
	env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { *spec = v1.ClusterPolicySpec{} })
}

// deleteObject deletes an object that the operator has installed.
func deleteObject(ctx context.Context, kind client.Object, name string) error {
	kind.SetName(name)
	kind.SetNamespace(namespace)
	if _, is := kind.(*nodev1.RuntimeClass); is {
		kind.SetNamespace("")
	}
	return admin.Delete(ctx, kind)
}
