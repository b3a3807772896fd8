package integration

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const removalFinalizer = "nvidia.com/gpu-operator.removal"

// TestRemoval: a deleted policy stays until nothing of its stack is left. Each node loses its operands in the reverse
// order of their start, is then cleaned up, and released last.
func TestRemoval(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.Expect(e.policy().Finalizers).To(ConsistOf(removalFinalizer))
	watched := e.watchPodDeletions()
	mark := e.mark()
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.awaitNoPolicy()
	e.Expect(e.eventsAbout("ClusterPolicy", policy)).To(ContainElement(And(HaveField("Reason", "Removing"),
		HaveField("Message", ContainSubstring("If the operator is gone before, install it again, or remove the rest: "+
			"kubectl gpu cleanup")))), "what ends the removal without the operator")
	t.Logf("writes: %s", e.operatorCalls(mark).Writes())
	e.expectNothingLeft("gpu-00000", "gpu-00001")
	restored()
	for _, node := range []string{"gpu-00000", "gpu-00001"} {
		order := watched.on(node)
		e.Expect(order).To(ContainElements("driver", "container-toolkit", "device-plugin", "dcgm-exporter", "node-cleanup"))
		e.Expect(order[len(order)-3:]).To(Equal([]string{"container-toolkit", "driver", "node-cleanup"}), "on %s", node)
	}
}

// TestRemovalIsHeld: two nodes whose GPUs are in use keep their whole stack until the pods have ended, and are reported
// with their names. No node waits for another one.
func TestRemovalIsHeld(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(3)
	busy := map[string]*corev1.Pod{
		"gpu-00001": e.runGPUPod("training", "gpu-00001"), "gpu-00002": e.runGPUPod("inference", "gpu-00002"),
	}
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.heldBy(3, busy)
	for name, user := range busy {
		held := e.node(name)
		e.Expect(nodeCondition(held)).To(And(HaveField("Status", corev1.ConditionTrue),
			HaveField("Reason", "RemovalHeld"), HaveField("Message", ContainSubstring("default/"+user.Name))))
		e.Expect(held.Labels).To(And(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"),
			HaveKeyWithValue("nvidia.com/gpu.deploy.dcgm-exporter", "true")), "nothing is taken off")
	}
	e.quietSince("while pods hold nodes", e.mark(), 3*time.Second)
	e.stop()
	e.run()
	e.quietSince("after a restart of the operator", e.mark(), 3*time.Second)
	e.Expect(e.client.Delete(t.Context(), busy["gpu-00001"])).To(Succeed())
	delete(busy, "gpu-00001")
	e.heldBy(3, busy)
	e.Expect(e.podOn("nvidia-dcgm-exporter", "gpu-00002")).NotTo(BeNil())
	e.Expect(e.client.Delete(t.Context(), busy["gpu-00002"])).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000", "gpu-00001", "gpu-00002")
	restored()
}

// heldBy waits until only these nodes are left of the total, each held by its pod.
func (e *env) heldBy(total int, busy map[string]*corev1.Pod) {
	e.t.Helper()
	message := fmt.Sprintf("removing the stack: %d of %d nodes left", len(busy), total)
	var nodes []any
	for _, name := range slices.Sorted(maps.Keys(busy)) {
		held := "held by default/" + busy[name].Name
		message += "; " + name + ": " + held
		nodes = append(nodes, And(HaveField("Name", name), HaveField("Reason", "RemovalHeld"),
			HaveField("Message", held)))
	}
	e.Eventually(e.policy).WithPolling(200 * time.Millisecond).Should(And(
		HaveField("Status.Conditions", ContainElement(And(HaveField("Type", v1.ConditionReady),
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Removing"), HaveField("Message", message)))),
		HaveField("Status.Nodes", ConsistOf(nodes...)),
	))
}

// TestForcedRemoval: with spec.removal.force, which can be set later, a node in use loses its stack. Its pods are not
// evicted.
func TestForcedRemoval(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	user := e.runGPUPod("training", "gpu-00000")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node("gpu-00000")) }).
		Should(HaveField("Reason", "RemovalHeld"))
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Removal = &v1.RemovalSpec{Force: new(true)} })
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000")
	e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(user), user)).To(Succeed())
	e.Expect(user.DeletionTimestamp).To(BeNil())
	e.Expect(e.client.Delete(t.Context(), user)).To(Succeed())
	restored()
}

// TestRemovalDuringAnInstallation: a policy is deleted while its nodes start, one of which cannot, and while the
// operator is killed again and again. The start-up taint with which that node has registered does not stay for ever.
func TestRemovalDuringAnInstallation(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.3)})
	e.sim.Break("driver", "gpu-00002", simulator.CrashLoop)
	restored := cluster.Restored(t, e.cluster.Config)
	e.taintAsItsKubelet("gpu-00002")
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeStartup = &v1.NodeStartupSpec{
		Taints: []v1.StartupTaint{{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}},
	}
	e.create(object)
	e.Eventually(func() string { return e.node("gpu-00002").Labels["nvidia.com/gpu.deploy.driver"] }).
		WithPolling(50 * time.Millisecond).Should(Equal("true"))
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	for _, gone := range []string{"", "device-plugin", "container-toolkit", "driver"} {
		e.Eventually(func() map[string]string { return e.node("gpu-00000").Labels }).WithPolling(20 * time.Millisecond).
			ShouldNot(HaveKey("nvidia.com/gpu.deploy." + gone))
		e.process.Kill()
		e.run()
	}
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000", "gpu-00001", "gpu-00002")
	restored()
}

// taintAsItsKubelet adds the operator's start-up taint to a node, as its kubelet does when it registers.
func (e *env) taintAsItsKubelet(name string) {
	e.t.Helper()
	node := e.node(name)
	before := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule})
	e.Expect(e.client.Patch(e.t.Context(), node, client.MergeFrom(before))).To(Succeed())
}

// TestRemovalDoesNotWaitForADeletedNode: a node that is deleted while it is held has nothing left.
func TestRemovalDoesNotWaitForADeletedNode(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.runGPUPod("training", "gpu-00001")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node("gpu-00001")) }).
		Should(HaveField("Reason", "RemovalHeld"))
	e.Expect(e.client.Delete(t.Context(), e.node("gpu-00001"))).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000")
	restored("Node /gpu-00001")
}

// TestRemovalReleasesAnUnreachableNode: a node whose kubelet stops reporting while pods use its GPUs is released after
// some minutes without clean-up, which an Event reports, so that the removal ends. When the kubelet is back, its pods
// end, and nothing is left.
func TestRemovalReleasesAnUnreachableNode(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	user := e.runGPUPod("training", "gpu-00001")
	back := e.loseKubelet("gpu-00001")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).WithPolling(200*time.Millisecond).
		Should(ConsistOf(HaveField("Name", "gpu-00001")), "only the unreachable node is left")
	e.awaitNoPolicy()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(t.Context(), pods, client.InNamespace(namespace),
		client.MatchingLabels{"nvidia.com/gpu-operator.operand": "driver"})).To(Succeed())
	e.Expect(pods.Items).To(ConsistOf(HaveField("Spec.NodeName", "gpu-00001")), "no kubelet has ended it")
	e.Expect(e.eventsAbout("Node", "gpu-00001")).To(ContainElement(And(HaveField("Reason", "NotCleanedUp"),
		HaveField("Message", And(ContainSubstring("the kubelet has not been ready since"),
			ContainSubstring("files under /run/nvidia"))))))
	back()
	e.expectNothingLeft("gpu-00000", "gpu-00001")
	e.Expect(client.IgnoreNotFound(e.client.Delete(t.Context(), user, client.GracePeriodSeconds(0)))).To(Succeed())
	restored()
}

// loseKubelet stops the simulated kubelet of a node, and lets the node be what the control plane makes of it. The
// returned function starts it again.
func (e *env) loseKubelet(name string) (back func()) {
	e.t.Helper()
	simulated := func(kind, annotation any) {
		e.t.Helper()
		e.patchNode(name, map[string]any{
			"labels":      map[string]any{"type": kind},
			"annotations": map[string]any{cluster.SimulatedNodeAnnotation: annotation},
		})
	}
	before := e.node(name)
	simulated(nil, nil)
	now := metav1.Now()
	e.setNodeCondition(name, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message: "Kubelet stopped posting node status.", LastHeartbeatTime: now, LastTransitionTime: now,
	})
	return func() {
		e.t.Helper()
		for _, condition := range before.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				e.setNodeCondition(name, condition)
			}
		}
		simulated(before.Labels["type"], before.Annotations[cluster.SimulatedNodeAnnotation])
	}
}

// setNodeCondition replaces a condition of a node.
func (e *env) setNodeCondition(name string, condition corev1.NodeCondition) {
	e.t.Helper()
	e.Eventually(func() error {
		node := e.node(name)
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == condition.Type {
				node.Status.Conditions[i] = condition
			}
		}
		return e.client.Status().Update(e.t.Context(), node)
	}).Should(Succeed())
}

// expectNothingLeft expects that neither the nodes nor the namespace have anything of the stack.
func (e *env) expectNothingLeft(nodes ...string) {
	e.t.Helper()
	for _, name := range nodes {
		node := e.node(name)
		own := Or(HavePrefix("nvidia.com/gpu-operator."), HavePrefix("nvidia.com/gpu.deploy."),
			HavePrefix("clusterpolicy.github.io/"), HavePrefix("nvidia.com/gpu.present"),
			HavePrefix("nvidia.com/gpu-driver-upgrade"))
		e.Expect(node.Labels).NotTo(HaveKey(own), name)
		e.Expect(node.Annotations).NotTo(HaveKey(own), name)
		e.Expect(nodeCondition(node)).To(BeNil(), name)
	}
	daemonSets, pods := &appsv1.DaemonSetList{}, &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), daemonSets, client.InNamespace(namespace))).To(Succeed())
	e.Expect(daemonSets.Items).To(BeEmpty())
	e.Eventually(func() (left []string) {
		e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace),
			client.HasLabels{"nvidia.com/gpu-operator.operand"})).To(Succeed())
		for i := range pods.Items {
			// Those of a deleted node end later, by another controller.
			if pod := &pods.Items[i]; slices.Contains(nodes, pod.Spec.NodeName) {
				left = append(left, pod.Name)
			}
		}
		return left
	}).WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

// dropFinalizers lets a deleted policy go although no operator has removed its stack.
func (e *env) dropFinalizers() {
	e.t.Helper()
	object := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}
	e.Expect(cluster.DropFinalizers(e.t.Context(), e.client, object)).To(Succeed())
}

// podDeletions are the operands of the pods that have been deleted, by node, in order.
type podDeletions struct {
	mu     sync.Mutex
	byNode map[string][]string
}

// on returns the operands whose pods on the node have been deleted, in order.
func (d *podDeletions) on(node string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.byNode[node])
}

// watchPodDeletions records the deletions of pods in the operator's namespace until the test ends.
func (e *env) watchPodDeletions() *podDeletions {
	e.t.Helper()
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	pods, err := admin.CoreV1().Pods(namespace).List(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	events, err := admin.CoreV1().Pods(namespace).Watch(e.t.Context(),
		metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	e.Expect(err).NotTo(HaveOccurred())
	found := &podDeletions{byNode: map[string][]string{}}
	go func() {
		for event := range events.ResultChan() {
			if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type == watch.Deleted {
				found.mu.Lock()
				found.byNode[pod.Spec.NodeName] = append(found.byNode[pod.Spec.NodeName],
					pod.Labels["nvidia.com/gpu-operator.operand"])
				found.mu.Unlock()
			}
		}
	}()
	e.t.Cleanup(events.Stop)
	return found
}
