package guides

import (
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	reasonHeld = "MIGConfigHeld"
	twoLarge   = "all-3g.40gb"
)

// TestLayoutsOfTheSpec: a changed spec.migManager.config.default reaches the nodes on which the operator has set the
// layout, one after the other, and none whose GPUs are used or that a user has labelled.
func TestLayoutsOfTheSpec(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	small := h100("small", 1)
	small.Model = simulator.ModelSmallA100
	idle := []string{"idle-0", "idle-1", "idle-2"}
	e := newEnv(t, []simulator.NodeSpec{
		h100(idle[0], 1), h100(idle[1], 1), h100(idle[2], 1), h100("busy", 1), small,
		h100("own", 1, migLabel, "all-balanced"),
	})
	e.createPolicy(func(spec *v1.ClusterPolicySpec) { spec.MIG = &v1.MIGSpec{Strategy: v1.MIGStrategyMixed} })
	e.awaitReady(6)
	tenant := request{name: "tenant", resource: wholeGPU, on: "busy"}.pod()
	e.create(tenant)
	e.expectRunning(tenant)

	changing := e.watchChanges(twoLarge)
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.MIGManager.Config.Default = new(twoLarge) })
	for _, node := range idle {
		e.expectAllocatable(node, map[string]int64{slice40: 2})
		e.expectReady(node)
	}
	e.expectHeld("busy", "MIG layout all-3g.40gb waits for pods default/tenant to end")
	e.expectHeld("small",
		"MIG layout all-3g.40gb is not for NVIDIA-A100-SXM4-40GB: use all-disabled, all-balanced, all-1g.5gb")
	e.Expect(e.node("busy").Labels).To(HaveKeyWithValue(migLabel, disabled))
	e.Expect(e.node("own").Labels).To(HaveKeyWithValue(migLabel, "all-balanced"))
	e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant)).To(Succeed())
	e.Expect(tenant.Status.Phase).To(Equal(corev1.PodRunning))

	e.Expect(e.client.Delete(t.Context(), tenant)).To(Succeed())
	e.expectAllocatable("busy", map[string]int64{slice40: 2})
	e.expectReady("busy")
	most, changed := changing()
	t.Logf("%d nodes got the layout, at most %d at a time", changed, most)
	e.Expect(changed).To(Equal(len(idle) + 1))
	e.Expect(most).To(Equal(1), "maxParallelUpgrades is 1 by default")

	second := request{name: "second", resource: slice40, on: idle[0]}.pod()
	e.create(second)
	e.expectRunning(second)
	e.respec(func(spec *v1.ClusterPolicySpec) {
		spec.MIGManager.Config.Default, spec.MIGManager.Config.OnBusy = new(disabled), v1.MIGBusyNow
	})
	e.Expect(e.expectReported(idle[0], reasonFailed).Message).To(ContainSubstring("while pods default/second used GPUs"))
	e.expectOperandsBack(idle[0])
	for _, node := range []string{idle[1], idle[2], "busy"} {
		e.expectAllocatable(node, map[string]int64{wholeGPU: 1})
		e.expectReady(node)
	}
}

// TestFirstLayouts: nodes that join get the layout of the spec although upgradePolicy gives no turn, while no pod uses
// their GPUs.
func TestFirstLayouts(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	nodes := []string{"first", "second", "third"}
	e := newEnv(t, []simulator.NodeSpec{h100(nodes[0], 1), h100(nodes[1], 1), h100(nodes[2], 1)})
	e.createPolicy(func(spec *v1.ClusterPolicySpec) {
		spec.MIG = &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}
		spec.MIGManager.Config.Default = new(twoLarge)
		spec.Driver.UpgradePolicy = &v1.DriverUpgradePolicySpec{MaxUnavailable: new(intstr.FromInt32(0))}
	})
	for _, node := range nodes {
		e.expectAllocatable(node, map[string]int64{slice40: 2})
		e.expectReady(node)
	}
}

// expectHeld waits until a node is ready, and says why it does not have the layout of the spec.
func (e *env) expectHeld(node, message string) {
	e.t.Helper()
	e.Eventually(func() corev1.NodeCondition { return e.condition(node) }).Should(And(
		HaveField("Status", corev1.ConditionTrue), HaveField("Reason", reasonHeld),
		HaveField("Message", ContainSubstring(message))), e.describe(node))
}

// watchChanges returns a function that ends the watch, and returns how many nodes at most have had a layout requested
// without an outcome at the same time, and how many got it.
func (e *env) watchChanges(layout string) func() (most, changed int) {
	e.t.Helper()
	watching, err := client.NewWithWatch(e.cluster.SimulatorConfig, client.Options{Scheme: e.client.Scheme()})
	e.Expect(err).NotTo(HaveOccurred())
	events, err := watching.Watch(e.t.Context(), &corev1.NodeList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{AllowWatchBookmarks: false},
	})
	e.Expect(err).NotTo(HaveOccurred())
	changing, seen, most := map[string]bool{}, map[string]bool{}, 0
	var done sync.WaitGroup
	done.Go(func() {
		for event := range events.ResultChan() {
			node, isNode := event.Object.(*corev1.Node)
			if !isNode || node.Labels[migLabel] != layout {
				continue
			}
			seen[node.Name] = true
			if state := node.Labels[migState]; state == "success" || state == "failed" {
				delete(changing, node.Name)
			} else {
				changing[node.Name] = true
			}
			most = max(most, len(changing))
		}
	})
	return func() (int, int) {
		events.Stop()
		done.Wait()
		return most, len(seen)
	}
}

// TestLayoutsAreReportedSoon: a layout that a user requests and that cannot be applied is reported within 2 seconds,
// with the layouts that can, or the pods that use the GPUs.
func TestLayoutsAreReportedSoon(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, []simulator.NodeSpec{h100("unknown", 1), h100("impossible", 1), h100("busy", 1)})
	e.createPolicy(func(*v1.ClusterPolicySpec) {})
	e.awaitReady(3)
	tenant := request{name: "tenant", resource: wholeGPU, on: "busy"}.pod()
	e.create(tenant)
	e.expectRunning(tenant)
	for _, test := range []struct {
		node, layout string
		messages     []string
	}{
		{"unknown", "all-1g.99gb", []string{"all-1g.99gb", "all-1g.10gb", "all-3g.40gb"}},
		{"impossible", "all-1g.5gb", []string{"is not for NVIDIA-H100-80GB-HBM3", "all-7g.80gb"}},
		{"busy", sevenSmall, []string{"default/tenant"}},
	} {
		begin := time.Now()
		e.layout(test.node, test.layout)
		e.Eventually(func(g Gomega) {
			message := e.condition(test.node).Message
			for _, text := range test.messages {
				g.Expect(message).To(ContainSubstring(text))
			}
		}).WithPolling(50*time.Millisecond).Should(Succeed(), e.describe(test.node))
		t.Logf("%s: reported after %.1f s: %s", test.layout, time.Since(begin).Seconds(),
			strings.TrimSpace(e.condition(test.node).Message))
	}
}

// awaitReady waits until the policy is ready with all nodes.
func (e *env) awaitReady(nodes int) {
	e.t.Helper()
	e.Eventually(func() *v1.NodeSummary { return e.policy().Status.NodeSummary }).WithTimeout(readyTime).
		Should(HaveField("Ready", int32(nodes)))
}
