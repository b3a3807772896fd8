package upgrade_test

import (
	"context"
	"encoding/json"
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
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// replacedPods are the operands whose pods are replaced after the driver: all that need it on their node.
var replacedPods = []string{
	"container-toolkit", validator, "device-plugin", "mps-control-daemon", "gpu-feature-discovery", "dcgm",
	"dcgm-exporter", "mig-manager",
}

// start starts a manager with the controller, its watches and the caches of the operator. The fleet does not change:
// what is assessed causes no pass. It stops with the spec.
func (f *fixture) start() {
	GinkgoHelper()
	pods := &observe.PodIndex{}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{
			NewInformer:       pods.NewInformer,
			DefaultNamespaces: map[string]cache.Config{cluster.OperatorNamespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: cachefilter.TrimNode}, &corev1.Pod{}: {Transform: cachefilter.NewPodTrimmer().Pod},
			},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	cached := pods.Client(mgr.GetClient())
	Expect(upgrade.New(upgrade.Options{
		Client: cached, Live: mgr.GetAPIReader(), Catalogue: catalogue, Namespace: cluster.OperatorNamespace,
		Fleet: f.fleet, Clock: clock.RealClock{}, Timing: upgrade.DefaultTiming(),
		Events: events.NewRecorder(cached, clock.RealClock{}, func(string) {}),
	}).SetupWithManager(mgr)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(ctx)).To(Succeed())
	})
	DeferCleanup(func() {
		cancel()
		running.Wait()
	})
}

// validates puts the node into the state in which only pods that are older than its driver keep it from its end.
func (f *fixture) validates(ctx context.Context, name string) {
	GinkgoHelper()
	f.update(ctx, name, func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Labels[labels.UpgradeState] = "validation-required"
		node.Annotations = map[string]string{labels.UpgradeRecord: fmt.Sprintf(
			`{"uid":%q,"round":1,"state":"validation-required","since":%q,"target":%q,"restarted":true,"cordoned":true}`,
			node.UID, f.clock.Now().Add(-time.Minute).UTC().Format(time.RFC3339), f.target)}
	})
	slot, err := json.Marshal(map[string]any{"uid": f.node(ctx, name).UID, "round": 1})
	Expect(err).NotTo(HaveOccurred())
	// A pass that had to write it would be followed by another one.
	Expect(f.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.OperatorNamespace, Name: labels.UpgradeSlots,
			Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		},
		Data: map[string]string{name: string(slot)},
	})).To(Succeed())
}

// replaced deletes the pod of an operand on the node and creates it again, until it is newer than the other pod.
func (f *fixture) replaced(ctx context.Context, name, node string, other *corev1.Pod) {
	GinkgoHelper()
	key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: name + "-" + node}
	Eventually(func(g Gomega) {
		pod := &corev1.Pod{}
		g.Expect(f.client.Get(ctx, key, pod)).To(Succeed())
		if !pod.CreationTimestamp.After(other.CreationTimestamp.Time) {
			f.deletePod(ctx, pod)
			f.runPod(ctx, name, node, f.target)
		}
		g.Expect(f.client.Get(ctx, key, pod)).To(Succeed())
		g.Expect(pod.CreationTimestamp.After(other.CreationTimestamp.Time)).To(BeTrue())
	}).WithPolling(100 * time.Millisecond).Should(Succeed())
}

var _ = Describe("A node whose new driver is ready, and on which one pod is older", func() {
	for _, name := range replacedPods {
		It("is done once "+name+" is replaced, though nothing else happens in the cluster", func(ctx SpecContext) {
			f := newFixture(ctx, automatic(), "a")
			f.target = "new"
			f.runPod(ctx, name, "a", f.target)
			f.deletePod(ctx, f.podOf(ctx, driver, "a"))
			f.play(ctx)
			if name != validator {
				f.replaced(ctx, validator, "a", f.podOf(ctx, driver, "a"))
			}
			f.validates(ctx, "a")
			f.start()
			Eventually(func() string {
				f.endPods(ctx)
				f.runPod(ctx, name, "a", f.target)
				return f.node(ctx, "a").Labels[labels.UpgradeState]
			}).WithPolling(50 * time.Millisecond).Should(Equal("upgrade-done"))
			Expect(f.node(ctx, "a").Spec.Unschedulable).To(BeFalse())
		})
	}
})

// podOf returns the pod of an operand on the node.
func (f *fixture) podOf(ctx context.Context, name, node string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(f.client.Get(ctx, client.ObjectKey{
		Namespace: cluster.OperatorNamespace, Name: name + "-" + node,
	}, pod)).To(Succeed())
	return pod
}
