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
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	monitorName, ruleName = "gpu-operator", "gpu-operator-alerts"
	release               = "418.94.202501221327-0"
)

// The specs of this container share a cluster that has the kinds of other projects.
var _ = Describe("Kinds that other projects define", Ordered, ContinueOnFailure, func() {
	var b *bed

	BeforeAll(func(ctx SpecContext) {
		define(ctx, "monitoring.coreos.com", "ServiceMonitor")
		define(ctx, "monitoring.coreos.com", "PrometheusRule")
		define(ctx, "image.openshift.io", "ImageStream")
		b = newBed(gpuNode("a"))
	})
	BeforeEach(func(ctx SpecContext) {
		b.answers(nil)
		b.restore(ctx)
		b.settle(ctx)
	})
	AfterAll(func(ctx SpecContext) {
		for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
			undefine(ctx, "monitoring.coreos.com", kind)
		}
		// The watches of the suite's caches end with their kinds.
		b.answers(nil)
		b.pass(ctx, longer)
		Expect(b.watched()).To(HaveEach(BeFalse()))
	})

	It("are used where the cluster has them", func(ctx SpecContext) {
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
		Expect(exists(ctx, &monitoringv1.PrometheusRule{}, ruleName)).To(BeTrue())
		Eventually(b.reconciler.OptionalKinds.Events()).Should(Receive())
		Expect(remove(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(Succeed())
		Eventually(b.reconciler.OptionalKinds.Events()).Should(Receive(), "a pass is due")
		b.pass(ctx, time.Second)
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
	})

	DescribeTable("a call fails once for an object", func(ctx SpecContext, what string, kind client.Object, name string) {
		Expect(remove(ctx, kind, name)).To(Succeed())
		b.answers(func(_ context.Context, made call) error {
			if made == (call{what: what, name: name}) {
				return errRefused
			}
			return nil
		})
		Expect(b.pass(ctx, longer)).To(Equal(time.Second))
		Expect(operandOf(b.policy(ctx), "operator-metrics")).To(And(
			HaveField("State", v1.OperandError), HaveField("Message", ContainSubstring(errRefused.Error())),
		))
		b.answers(nil)
		b.pass(ctx, time.Second)
		Expect(exists(ctx, kind, name)).To(BeTrue())
	},
		Entry(nil, "cached get ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "live get ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "apply ServiceMonitor", &monitoringv1.ServiceMonitor{}, monitorName),
		Entry(nil, "cached get PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
		Entry(nil, "live get PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
		Entry(nil, "apply PrometheusRule", &monitoringv1.PrometheusRule{}, ruleName),
	)

	DescribeTable("a call fails once beside the operands", func(ctx SpecContext, what string, prepare func(context.Context, *bed)) {
		prepare(ctx, b)
		failed := b.failOnce(what, 1)
		_, err := b.after(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(err).To(MatchError(errRefused))
		Expect(message(b.policy(ctx), v1.ConditionReady)).To(ContainSubstring(errRefused.Error()))
		b.pass(ctx, time.Second)
		b.settle(ctx)
		Expect(b.watched()).To(HaveEach(BeTrue()))
	},
		Entry(nil, "watch ServiceMonitor", forgetKinds),
		Entry(nil, "watch PrometheusRule", forgetKinds),
		Entry(nil, "handle ServiceMonitor", forgetKinds),
		Entry(nil, "handle PrometheusRule", forgetKinds),
		Entry(nil, "cached list ServiceMonitor", nothing),
		Entry(nil, "cached list PrometheusRule", nothing),
		Entry(nil, "delete ServiceMonitor", noStatusExporter),
		Entry(nil, "delete PrometheusRule", noStatusExporter),
	)

	DescribeTable("the discovery of a kind fails once", func(ctx SpecContext, what string) {
		forgetKinds(ctx, b)
		failed := b.failOnce(what, 1)
		b.pass(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"), "it holds up nothing else")
		Expect(exists(ctx, &monitoringv1.ServiceMonitor{}, monitorName)).To(BeTrue())
		Expect(exists(ctx, &monitoringv1.PrometheusRule{}, ruleName)).To(BeTrue(), "it needs the other kind, and is not pruned")
		events := b.reconciler.OptionalKinds.Events()
		Eventually(events).Should(Receive(), "the other kind is watched")
		b.clock.Step(time.Second)
		Eventually(func() map[operand.OptionalKind]bool {
			b.pass(ctx, 0)
			return b.watched()
		}).Should(HaveEach(BeTrue()))
		Eventually(events).Should(Receive(), "a pass is due")
		b.settle(ctx)
	},
		Entry(nil, "map ServiceMonitor"),
		Entry(nil, "map PrometheusRule"),
	)

	DescribeTable("a call fails once for the driver toolkit", func(ctx SpecContext, what string) {
		Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: labels.DriverToolkitNamespace}})).
			To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
		b.coreOS(ctx)
		failed := b.failOnce(what, 1)
		b.pass(ctx, longer)
		Expect(failed().what).To(Equal(what))
		Expect(b.fleet.Basis().Decisions.Input.DriverToolkit).To(BeNil())
		Expect(condition(b.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"), "it concerns the nodes alone that need it")
		b.clock.Step(10 * time.Second)
		Eventually(func() map[string]string {
			b.pass(ctx, 0)
			return b.fleet.Basis().Decisions.Input.DriverToolkit
		}).Should(HaveKey(release))

		b.ubuntu(ctx)
		b.failOnce("unwatch ImageStream", 1)
		_, err := b.after(ctx, longer)
		Expect(err).To(MatchError(errRefused))
		Expect(condition(b.policy(ctx), v1.ConditionReady)).To(Equal("False ReconcileFailed"))
		b.pass(ctx, time.Second)
	},
		Entry(nil, "map ImageStream"),
		Entry(nil, "watch ImageStream"),
		Entry(nil, "handle ImageStream"),
		Entry(nil, "image get ImageStream"),
	)

	DescribeTable("the end of a watch fails once", func(ctx SpecContext, kind string) {
		undefine(ctx, "monitoring.coreos.com", kind)
		b.failOnce("unwatch "+kind, 1)
		_, err := b.after(ctx, longer)
		Expect(err).To(And(MatchError(errRefused), MatchError(ContainSubstring("watching "+kind+" objects"))))
		b.pass(ctx, time.Second)
		Expect(condition(b.policy(ctx), v1.ConditionReady)).NotTo(Equal("False ReconcileFailed"))
	},
		Entry(nil, "ServiceMonitor"),
		Entry(nil, "PrometheusRule"),
	)
})

var _ = Describe("The controller in a manager", func() {
	It("makes a pass after each event", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		// What a watch of the manager answers is no part of a pass.
		b.reconciler.References = references
		mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(b.reconciler.SetupWithManager(mgr)).To(Succeed())
		Expect(b.reconciler.SetupWithManager(mgr)).To(MatchError(ContainSubstring("controller with name clusterpolicy already exists")))
		running, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- mgr.Start(running) }()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(Receive(BeNil()))
		})
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		count := func() int { return len(daemonSets(ctx)) }
		Eventually(count).Should(Equal(6))
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		Eventually(count).Should(Equal(6), "the deletion is an event")
	})
})

// coreOS has the node run Red Hat CoreOS, whose driver the toolkit of its release builds.
func (b *bed) coreOS(ctx context.Context) {
	GinkgoHelper()
	node := b.nodes[0]
	node.Labels[labels.DiscoveryOSID], node.Labels[labels.DiscoveryOSVersion], node.Labels[labels.DiscoveryOSTree] = "rhcos", "4.18", release
	b.upgrade("4.18")
	b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Operator = &v1.OperatorSpec{UseOCPDriverToolkit: new(true)} })
	stream := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tags": []any{
		map[string]any{"name": release, "from": map[string]any{"kind": "DockerImage", "name": "example.com/toolkit:418"}},
	}}}}
	stream.SetAPIVersion("image.openshift.io/v1")
	stream.SetKind("ImageStream")
	stream.SetNamespace(labels.DriverToolkitNamespace)
	stream.SetName(labels.DriverToolkitName)
	Expect(admin.Create(ctx, stream)).To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
}

// ubuntu has the node run Ubuntu again.
func (b *bed) ubuntu(ctx context.Context) {
	GinkgoHelper()
	node := b.nodes[0]
	node.Labels[labels.DiscoveryOSID] = "ubuntu"
	delete(node.Labels, labels.DiscoveryOSTree)
	b.upgrade("24.04")
	b.assess(ctx)
}

// forgetKinds has the optional kinds be watched anew, as after a restart.
func forgetKinds(_ context.Context, b *bed) { b.reconciler.OptionalKinds = b.kinds() }

// watched is which of the optional kinds are watched.
func (b *bed) watched() map[operand.OptionalKind]bool {
	found := map[operand.OptionalKind]bool{}
	for _, kind := range b.reconciler.OptionalKinds.watches {
		found[kind.Kind] = kind.Watching()
	}
	return found
}

// noStatusExporter installs the node-status exporter, and no longer asks for it: it has objects of both kinds.
func noStatusExporter(ctx context.Context, b *bed) {
	GinkgoHelper()
	b.edit(ctx, func(spec *v1.ClusterPolicySpec) {
		spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	})
	b.settle(ctx)
	b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.NodeStatusExporter = nil })
}

// define has the API server serve a kind of another project, without its schema.
func define(ctx context.Context, group, kind string) {
	GinkgoHelper()
	plural := strings.ToLower(kind) + "s"
	definition := definitionNamed(plural + "." + group)
	definition.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, a stand-in for a test"})
	definition.Object["spec"] = map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}
	Expect(admin.Create(ctx, definition)).To(Succeed())
	Eventually(func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/v1")
		list.SetKind(kind + "List")
		return admin.List(ctx, list)
	}).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) { undefine(ctx, group, kind) })
}

func undefine(ctx context.Context, group, kind string) {
	GinkgoHelper()
	definition := definitionNamed(strings.ToLower(kind) + "s." + group)
	Expect(client.IgnoreNotFound(admin.Delete(ctx, definition))).To(Succeed())
	Eventually(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(definition), definition) }).Should(Satisfy(apierrors.IsNotFound))
}

func definitionNamed(name string) *unstructured.Unstructured {
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(name)
	return definition
}
