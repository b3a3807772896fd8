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

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const removalFinalizer = "nvidia.com/gpu-operator.removal"

// TestRemoval: a deleted policy stays until nothing of its stack is left. Each node loses its operands in the reverse
// order of their start, is then cleaned up, and released last.
func TestRemoval(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
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
	for _, node := range []string{"gpu-00000", "gpu-00001"} {
		order := watched.on(node)
		e.Expect(order).To(ContainElements("driver", "container-toolkit", "device-plugin", "dcgm-exporter", "node-cleanup"))
		e.Expect(order[len(order)-3:]).To(Equal([]string{"container-toolkit", "driver", "node-cleanup"}), "on %s", node)
	}
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
	e.Eventually(func() []corev1.Pod {
		e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace),
			client.HasLabels{"nvidia.com/gpu-operator.operand"})).To(Succeed())
		return pods.Items
	}).WithPolling(100 * time.Millisecond).Should(BeEmpty())
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
