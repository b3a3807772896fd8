package node_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// newManager returns a manager with the caches of the operator.
func newManager() manager.Manager {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{cluster.OperatorNamespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: cachefilter.TrimNode},
				&corev1.Pod{}:  {Transform: cachefilter.NewPodTrimmer().Pod},
			},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	return mgr
}

// managedController is a Reconciler that runs in a manager, with the real clock.
type managedController struct {
	*calls
	fleet *fleet.Fleet
}

// startController starts a manager with the controller. It stops with the specs of the container.
func startController(timing node.Timing) *managedController {
	GinkgoHelper()
	mgr := newManager()
	m := &managedController{calls: newCalls(), fleet: fleet.New()}
	cached, err := client.NewWithWatch(
		cfg, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: mgr.GetCache()}},
	)
	Expect(err).NotTo(HaveOccurred())
	recorded, now := m.wrap(cached, listPods), clock.RealClock{}
	ctx, cancel := context.WithCancel(context.Background())
	Expect(node.New(node.Options{
		Client:    recorded,
		Live:      mgr.GetAPIReader(),
		Catalogue: catalogue,
		Namespace: cluster.OperatorNamespace,
		Fleet:     m.fleet,
		Events:    events.NewRecorder(recorded, now, func(string) {}),
		Meter:     metrics.New(now),
		Clock:     now,
		Timing:    timing,
	}).SetupWithManager(ctx, mgr)).To(Succeed())
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(ctx)).To(Succeed())
	})
	DeferCleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

// expectReady waits until these nodes are assessed by the present Basis and reported ready.
func (m *managedController) expectReady(ctx context.Context, nodes ...*testNode) {
	GinkgoHelper()
	for _, one := range nodes {
		Eventually(func() *fleet.Entry { return m.fleet.Get(one.name) }).WithContext(ctx).Should(And(
			Not(BeNil()),
			HaveField("BasisVersion", m.fleet.Basis().Version),
			HaveField("Latest.State", readiness.Ready),
		), one.name)
		Eventually(one.reported).WithContext(ctx).Should(Equal("True GPUReady"))
	}
}

// drainEvents returns once an event of the marker node has been processed, and with it all earlier events of nodes.
func (m *managedController) drainEvents(ctx context.Context, marker *testNode) {
	GinkgoHelper()
	mark := fmt.Sprint(time.Now().UnixNano())
	marker.update(ctx, func(node *corev1.Node) { node.Labels[labels.GPUProduct] = mark })
	Eventually(func() string { return m.fleet.Get(marker.name).Facts.Product }).WithContext(ctx).Should(Equal(mark))
}

var _ = Describe("The controller in a manager", Ordered, func() {
	const pool, rack = "example.com/pool", "example.com/rack"
	var (
		m              *managedController
		a, b           *testNode
		selects, other = v1.ClusterPolicySpec{
			DaemonSets: &v1.DaemonSetsSpec{NodeSelector: v1.Labels{pool: "gpu"}},
		}, v1.ClusterPolicySpec{}
	)

	BeforeAll(func(ctx SpecContext) {
		inPool := func(node *corev1.Node) { node.Labels[pool] = "gpu" }
		a, b = newTestNode(ctx, newClient(), inPool), newTestNode(ctx, newClient(), inPool)
		timing := node.DefaultTiming()
		timing.Debounce, timing.FirstRetry, timing.RetryStale = time.Second, 10*time.Millisecond, 100*time.Millisecond
		m = startController(timing)
	})

	It("has an entry for all nodes before there is a Basis", func(ctx SpecContext) {
		Eventually(m.fleet.View).WithContext(ctx).
			Should(And(HaveField("Hydrated", true), HaveField("Nodes", HaveLen(2))))
		Expect(m.fleet.Names()).To(ConsistOf(a.name, b.name))
	})

	It("assesses all nodes when a Basis is published", func(ctx SpecContext) {
		m.fleet.Publish(basis(selects), time.Now())
		m.expectReady(ctx, a, b)
		m.fleet.Publish(basis(other), time.Now())
		m.expectReady(ctx, a, b)
		m.fleet.Publish(basis(selects), time.Now())
		m.expectReady(ctx, a, b)
	})

	It("reconciles a node whose relevant labels change, and no other", func(ctx SpecContext) {
		round := 0
		// Earlier requests may interfere, but not each time.
		Eventually(func() int {
			round++
			m.takeCalls()
			a.updateStatus(ctx, func(status *corev1.NodeStatus) {
				status.Conditions[0].LastHeartbeatTime = metav1.Now()
				status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprintf("example.com/image-%d", round)}}}
			})
			a.update(ctx, func(node *corev1.Node) { node.Labels[rack] = fmt.Sprint(round) })
			m.drainEvents(ctx, b)
			return m.count(getNode, a.name)
		}).WithContext(ctx).Should(BeZero())
		a.update(ctx, func(node *corev1.Node) { node.Labels[pool] = "cpu" })
		Eventually(m.count).WithContext(ctx).
			WithArguments(getNode, a.name).
			Should(BeNumerically(">", 0), "the spec selects nodes by this label")
		a.update(ctx, func(node *corev1.Node) { node.Labels[pool] = "gpu" })
		m.expectReady(ctx, a)
	})

	It("assesses a node once for a burst of events of its pods", func(ctx SpecContext) {
		// Earlier requests may interfere, but not each time.
		Eventually(func() int {
			m.takeCalls()
			for range 3 {
				a.setPod(ctx, discovery, starts)
				a.setPod(ctx, discovery, ready(time.Now()))
			}
			Eventually(m.count).WithContext(ctx).WithArguments(listPods, a.name).Should(BeNumerically(">", 0))
			return m.count(listPods, a.name)
		}).WithContext(ctx).Should(Equal(1))
	})

	It("reports a pod that fails, and that it works again", func(ctx SpecContext) {
		a.setPod(ctx, driver, crashes)
		Eventually(a.reported).WithContext(ctx).Should(Equal("False CrashLoopBackOff"))
		a.setPod(ctx, driver, ready(time.Now()))
		m.expectReady(ctx, a)
	})

	It("restores a removed label, also if a write fails first", func(ctx SpecContext) {
		m.beforeNext(patchLabels, func(context.Context) error { return errInternal })
		a.update(ctx, func(node *corev1.Node) { delete(node.Labels, labels.Pool) })
		Eventually(func() map[string]string { return a.node(ctx).Labels }).WithContext(ctx).Should(HaveKey(labels.Pool))
		m.expectReady(ctx, a)
		Eventually(func() string { return m.fleet.Get(a.name).WriteError }).WithContext(ctx).Should(BeEmpty())
	})

	It("removes the entry of a deleted node", func(ctx SpecContext) {
		b.remove(ctx)
		Eventually(m.fleet.Names).WithContext(ctx).Should(ConsistOf(a.name))
	})
})

var _ = Describe("A fleet after a start", func() {
	It("has the facts of all nodes, but keeps earlier entries of reconciles", func(ctx SpecContext) {
		f := newReady(ctx)
		joined := newTestNode(ctx, f.client)
		before := f.entry()
		Expect(f.reconciler.Hydrate(ctx)).To(Succeed())
		Expect(f.takeCalls()).To(Equal([]string{listNodes}))
		Expect(f.fleet.View()).To(HaveField("Hydrated", true))
		Expect(f.entry()).To(BeIdenticalTo(before))
		Expect(f.fleet.Get(joined.name)).To(And(HaveField("Facts.HasGPU", true), HaveField("BasisVersion", BeZero())))
	})

	It("is not hydrated if nodes cannot be listed", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.fail(listNodes, errForbidden)
		Expect(f.reconciler.Hydrate(ctx)).To(MatchError(errForbidden))
		Expect(f.fleet.View()).To(HaveField("Hydrated", false))
	})
})
