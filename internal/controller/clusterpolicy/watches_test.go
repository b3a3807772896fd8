package clusterpolicy

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	monitorName, ruleName = "gpu-operator", "nvidia-gpu-operator-metrics"
	release               = "418.94.202501221327-0"
)

// The specs of this container share a cluster that has the CRDs of other projects.
var _ = Describe("Kinds of other projects", Ordered, ContinueOnFailure, func() {
	var env *testEnv

	BeforeAll(func(ctx SpecContext) {
		installCRD(ctx, "monitoring.coreos.com", "ServiceMonitor")
		installCRD(ctx, "monitoring.coreos.com", "PrometheusRule")
		installCRD(ctx, "image.openshift.io", "ImageStream")
		env = newEnv(gpuNode("a"))
	})
	BeforeEach(func(ctx SpecContext) {
		env.onCall(nil)
		env.resetPolicy(ctx)
		env.settle(ctx)
	})
	AfterAll(func(ctx SpecContext) {
		for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
			deleteCRD(ctx, "monitoring.coreos.com", kind)
		}
		// The watches of the suite's caches end with their kinds.
		env.onCall(nil)
		env.pass(ctx, statusInterval)
		Expect(env.watchedKinds()).To(HaveEach(BeFalse()))
	})

	It("are used if the cluster has them", func(ctx SpecContext) {
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
		Expect(exists(ctx, &monitoringv1.PrometheusRule{}, ruleName)).To(BeTrue())
		Eventually(env.reconciler.OptionalKinds.Events()).Should(Receive())
		Expect(deleteObject(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(Succeed())
		Eventually(env.reconciler.OptionalKinds.Events()).Should(Receive(), "an event for a pass")
		env.pass(ctx, time.Second)
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
	})

	DescribeTable("when a call for an object fails once", func(
		ctx SpecContext, op string, kind client.Object, name string,
	) {
		Expect(deleteObject(ctx, kind, name)).To(Succeed())
		env.onCall(func(_ context.Context, c call) error {
			if c == (call{op: op, name: name}) {
				return errInjected
			}
			return nil
		})
		Expect(env.pass(ctx, statusInterval)).To(Equal(time.Second))
		Expect(operandOf(env.policy(ctx), "operator-metrics")).To(And(
			HaveField("State", v1.OperandError), HaveField("Message", ContainSubstring(errInjected.Error())),
		))
		env.onCall(nil)
		env.pass(ctx, time.Second)
		Expect(exists(ctx, kind, name)).To(BeTrue())
	},
		Entry(nil, "cached get ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "live get ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "apply ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "cached get PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
		Entry(nil, "live get PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
		Entry(nil, "apply PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
	)

	DescribeTable("when a call that concerns no single operand fails once", func(
		ctx SpecContext, op string, prepare func(context.Context, *testEnv),
	) {
		prepare(ctx, env)
		failed := env.failOnce(op, 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(err).To(MatchError(errInjected))
		Expect(message(env.policy(ctx), v1.ConditionReady)).To(ContainSubstring(errInjected.Error()))
		env.pass(ctx, time.Second)
		env.settle(ctx)
		Expect(env.watchedKinds()).To(HaveEach(BeTrue()))
	},
		Entry(nil, "watch ServiceMonitor", resetOptionalKinds),
		Entry(nil, "watch PrometheusRule", resetOptionalKinds),
		Entry(nil, "handle ServiceMonitor", resetOptionalKinds),
		Entry(nil, "handle PrometheusRule", resetOptionalKinds),
		Entry(nil, "cached list ServiceMonitor", noPreparation),
		Entry(nil, "cached list PrometheusRule", noPreparation),
		Entry(nil, "delete ServiceMonitor", disableStatusExporter),
		Entry(nil, "delete PrometheusRule", disableStatusExporter),
	)

	DescribeTable("when the discovery of a kind fails once", func(ctx SpecContext, op string) {
		resetOptionalKinds(ctx, env)
		failed := env.failOnce(op, 1)
		env.pass(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"), "it delays nothing else")
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
		Expect(exists(ctx, &monitoringv1.PrometheusRule{}, ruleName)).To(BeTrue(), "not pruned")
		events := env.reconciler.OptionalKinds.Events()
		Eventually(events).Should(Receive(), "the other kind is watched")
		env.clock.Step(time.Second)
		Eventually(func() map[operand.OptionalKind]bool {
			env.pass(ctx, 0)
			return env.watchedKinds()
		}).Should(HaveEach(BeTrue()))
		Eventually(events).Should(Receive(), "an event for a pass")
		env.settle(ctx)
	},
		Entry(nil, "map ServiceMonitor"),
		Entry(nil, "map PrometheusRule"),
	)

	DescribeTable("when a call for the driver toolkit fails once", func(ctx SpecContext, op string) {
		Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: labels.DriverToolkitNamespace}})).
			To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
		env.switchToCoreOS(ctx)
		failed := env.failOnce(op, 1)
		env.pass(ctx, statusInterval)
		Expect(failed().op).To(Equal(op))
		Expect(env.fleet.Basis().Decisions.Input.DriverToolkit).To(BeNil())
		Expect(condition(env.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"),
			"it concerns only the nodes that need it")
		env.clock.Step(10 * time.Second)
		Eventually(func() map[string]string {
			env.pass(ctx, 0)
			return env.fleet.Basis().Decisions.Input.DriverToolkit
		}).Should(HaveKey(release))

		env.switchToUbuntu(ctx)
		env.failOnce("unwatch ImageStream", 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(MatchError(errInjected))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		env.pass(ctx, time.Second)
	},
		Entry(nil, "map ImageStream"),
		Entry(nil, "watch ImageStream"),
		Entry(nil, "handle ImageStream"),
		Entry(nil, "image get ImageStream"),
	)

	DescribeTable("when stopping a watch fails once", func(ctx SpecContext, kind string) {
		deleteCRD(ctx, "monitoring.coreos.com", kind)
		env.failOnce("unwatch "+kind, 1)
		_, err := env.reconcileAfter(ctx, statusInterval)
		Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring("watching "+kind+" objects"))))
		env.pass(ctx, time.Second)
		Expect(condition(env.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"))
	},
		Entry(nil, "ServiceMonitor"),
		Entry(nil, "PrometheusRule"),
	)
})

var _ = Describe("The controller in a manager", func() {
	It("runs a pass after each event", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		// Calls of the manager's watches are not part of a pass.
		env.reconciler.References = references
		mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.reconciler.SetupWithManager(mgr)).To(Succeed())
		Expect(env.reconciler.SetupWithManager(mgr)).To(
			MatchError(ContainSubstring("controller with name clusterpolicy already exists")))
		running, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- mgr.Start(running) }()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(Receive(BeNil()))
		})
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		count := func() int { return len(daemonSets(ctx)) }
		Eventually(count).Should(Equal(6))
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		Eventually(count).Should(Equal(6), "the deletion is an event")
	})
})

// switchToCoreOS makes the node run Red Hat CoreOS, whose driver is built with the driver toolkit of its release.
func (env *testEnv) switchToCoreOS(ctx context.Context) {
	GinkgoHelper()
	node := env.nodes[0]
	node.Labels[labels.DiscoveryOSID] = "rhcos"
	node.Labels[labels.DiscoveryOSVersion] = "4.18"
	node.Labels[labels.DiscoveryOSTree] = release
	env.setOSVersion("4.18")
	env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
		spec.Operator = &v1.OperatorSpec{UseOCPDriverToolkit: new(true)}
	})
	stream := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tags": []any{
		map[string]any{"name": release, "from": map[string]any{"kind": "DockerImage", "name": "example.com/toolkit:418"}},
	}}}}
	stream.SetAPIVersion("image.openshift.io/v1")
	stream.SetKind("ImageStream")
	stream.SetNamespace(labels.DriverToolkitNamespace)
	stream.SetName(labels.DriverToolkitName)
	Expect(admin.Create(ctx, stream)).To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
}

// switchToUbuntu makes the node run Ubuntu again.
func (env *testEnv) switchToUbuntu(ctx context.Context) {
	GinkgoHelper()
	node := env.nodes[0]
	node.Labels[labels.DiscoveryOSID] = "ubuntu"
	delete(node.Labels, labels.DiscoveryOSTree)
	env.setOSVersion("24.04")
	env.assessNodes(ctx)
}

// resetOptionalKinds makes the next pass start the watches of optional kinds again, as after a restart.
func resetOptionalKinds(_ context.Context, env *testEnv) {
	env.reconciler.OptionalKinds = env.newOptionalKinds()
}

// watchedKinds reports which of the optional kinds are watched.
func (env *testEnv) watchedKinds() map[operand.OptionalKind]bool {
	found := map[operand.OptionalKind]bool{}
	for _, kind := range env.reconciler.OptionalKinds.watches {
		found[kind.Kind] = kind.Watching()
	}
	return found
}

// disableStatusExporter enables the node status exporter, which has objects of both kinds, and then disables it.
func disableStatusExporter(ctx context.Context, env *testEnv) {
	GinkgoHelper()
	env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
		spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	})
	env.settle(ctx)
	env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.NodeStatusExporter = nil })
}

// installCRD creates a CRD of another project, without its schema, and waits until the API server serves the kind.
func installCRD(ctx context.Context, group, kind string) {
	GinkgoHelper()
	plural := strings.ToLower(kind) + "s"
	crd := newCRD(plural + "." + group)
	crd.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"})
	crd.Object["spec"] = map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			},
		}},
	}
	Expect(admin.Create(ctx, crd)).To(Succeed())
	Eventually(func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/v1")
		list.SetKind(kind + "List")
		return admin.List(ctx, list)
	}).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) { deleteCRD(ctx, group, kind) })
}

func deleteCRD(ctx context.Context, group, kind string) {
	GinkgoHelper()
	crd := newCRD(strings.ToLower(kind) + "s." + group)
	Expect(client.IgnoreNotFound(admin.Delete(ctx, crd))).To(Succeed())
	Eventually(func() error {
		return admin.Get(ctx, client.ObjectKeyFromObject(crd), crd)
	}).Should(Satisfy(apierrors.IsNotFound))
}

func newCRD(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(name)
	return crd
}

var _ = Describe("NVIDIADriver objects", func() {
	It("are read once the API server has answered that it serves them", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		read := func() []operand.NVIDIADriver { return env.fleet.Basis().Decisions.Input.NVIDIADrivers }
		failed := env.failOnce("map NVIDIADriver", 1)
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}})
		env.pass(ctx, statusInterval)
		Expect(failed().op).To(Equal("map NVIDIADriver"))
		Expect(read()).To(BeNil())
		Eventually(func() []operand.NVIDIADriver {
			env.clock.Step(time.Second)
			env.pass(ctx, 0)
			return read()
		}).ShouldNot(BeNil())
	})
})
