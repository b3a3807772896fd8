package integration

import (
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
	t.Logf("writes: %s", e.operatorCalls(mark).Writes())
	e.expectNothingLeft("gpu-00000", "gpu-00001")
	restored()
	for _, node := range []string{"gpu-00000", "gpu-00001"} {
		order := watched.on(node)
		e.Expect(order).To(ContainElements("driver", "container-toolkit", "device-plugin", "dcgm-exporter", "node-cleanup"))
		e.Expect(order[len(order)-3:]).To(Equal([]string{"container-toolkit", "driver", "node-cleanup"}), "on %s", node)
	}
}

// TestRemovalIsHeld: a node whose GPUs are in use keeps its whole stack until the pods have ended, and is reported with
// their names; other nodes do not wait for it.
func TestRemovalIsHeld(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	user := e.runGPUPod("gpu-00001")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(e.policy).WithPolling(200 * time.Millisecond).Should(And(
		HaveField("Status.Conditions", ContainElement(And(HaveField("Type", v1.ConditionReady),
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Removing"),
			HaveField("Message", "removing the stack: 1 of 2 nodes left; gpu-00001: held by default/training")))),
		HaveField("Status.Nodes", ConsistOf(And(HaveField("Name", "gpu-00001"), HaveField("Reason", "RemovalHeld"),
			HaveField("Message", "held by default/training")))),
	))
	held := e.node("gpu-00001")
	e.Expect(nodeCondition(held)).To(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "RemovalHeld"),
		HaveField("Message", ContainSubstring("default/training"))))
	e.Expect(held.Labels).To(And(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"),
		HaveKeyWithValue("nvidia.com/gpu.deploy.dcgm-exporter", "true")), "nothing is taken off")
	e.quietSince("while a pod holds a node", e.mark(), 3*time.Second)
	e.stop()
	e.run()
	e.quietSince("after a restart of the operator", e.mark(), 3*time.Second)
	e.Expect(e.podOn("nvidia-dcgm-exporter", "gpu-00001")).NotTo(BeNil())
	e.Expect(e.client.Delete(t.Context(), user)).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000", "gpu-00001")
	restored()
}

// TestForcedRemoval: with spec.removal.force, which can be set later, a node in use loses its stack. Its pods are not
// evicted.
func TestForcedRemoval(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	user := e.runGPUPod("gpu-00000")
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
// operator is killed again and again.
func TestRemovalDuringAnInstallation(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.3)})
	e.sim.Break("driver", "gpu-00002", simulator.CrashLoop)
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
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

// TestRemovalDoesNotWaitForADeletedNode: a node that is deleted while it is held has nothing left.
func TestRemovalDoesNotWaitForADeletedNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.runGPUPod("gpu-00001")
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node("gpu-00001")) }).
		Should(HaveField("Reason", "RemovalHeld"))
	e.Expect(e.client.Delete(t.Context(), e.node("gpu-00001"))).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000")
	restored("Node /gpu-00001")
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
