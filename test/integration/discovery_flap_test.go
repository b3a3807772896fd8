package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	discoveryPrefix = "feature.node.kubernetes.io/"
	missingSince    = "nvidia.com/gpu-operator.discovery-missing-since"
	lostSince       = "nvidia.com/gpu-operator.discovery-lost-since"
)

// TestDiscoveryLabelsFlap: discovery takes its labels off all nodes and puts them back later, as when it is
// installed anew. The nodes say so and go on; no pod is deleted and no DaemonSet changed, also where the operator
// starts anew meanwhile. The labels stay away for longer than the grace period.
func TestDiscoveryLabelsFlap(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	object := b.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}}
	// A selector by a label of discovery flaps with it.
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{discoveryPrefix + "pci-10de.present": "true"}}}
	b.create(object)
	b.awaitReady(3)
	names := []string{"gpu-00000", "gpu-00001", "gpu-00002"}
	b.eachSays(names, HaveField("Reason", "GPUReady"))
	pods, generations, mark := b.pods(), b.generations(), b.mark()
	away := map[string]map[string]string{}
	for _, name := range names {
		away[name] = b.takeLabels(name, discoveryPrefix)
	}
	b.eachSays(names, And(HaveField("Reason", "DiscoveryLabelsMissing"),
		HaveField("Message", MatchRegexp(`: GPUs can be used; no discovery labels since 20\S+Z; nothing is removed`))))
	b.Eventually(func(g Gomega) {
		g.Expect(b.policy().Status.Nodes).To(HaveEach(And(HaveField("Reason", "DiscoveryLabelsMissing"), HaveField("Ready", true))))
		g.Expect(b.policy().Status.State).To(Equal(v1.StateReady))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	since := b.node(names[0]).Annotations[missingSince]
	b.stop()
	b.run()
	b.Consistently(func() string { return b.node(names[0]).Annotations[missingSince] }).WithTimeout(2*time.Second).Should(Equal(since), "the operator that starts anew knows")

	for _, name := range names {
		b.putLabels(name, away[name])
	}
	b.eachSays(names, HaveField("Reason", "GPUReady"))
	for _, name := range names {
		b.Expect(b.node(name).Annotations).NotTo(HaveKey(missingSince))
	}
	b.Expect(b.pods()).To(Equal(pods), "the same pods")
	b.Expect(b.generations()).To(Equal(generations), "the same DaemonSets")
	calls, err := b.cluster.Since(mark)
	b.Expect(err).NotTo(HaveOccurred())
	for _, call := range calls.Of("pods") {
		b.Expect(call.Verb).NotTo(HavePrefix("delete"))
	}
	writes := b.operatorCalls(mark).Writes() // The restart is among them.
	b.Expect(writes.Of("daemonsets")).To(BeEmpty())
	b.Expect(len(writes.Of("nodes"))).To(BeNumerically("<=", 4*len(names)), "two changes, and each is noted and told:\n%s", writes)
}

// TestAGPUIsGone: a GPU breaks away under a training. The node keeps its driver for as long as that runs, also
// when the grace period is over and the operator has started anew. Then all that the operator wrote goes.
func TestAGPUIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	const node, grace = "gpu-00000", 3 * time.Second
	b.run()
	object := b.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: grace}}
	b.create(object)
	b.awaitReady(2)
	user := gpuPod("training", node)
	b.create(user)
	b.Eventually(func() corev1.PodPhase {
		b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(user), user)).To(Succeed())
		return user.Status.Phase
	}).Should(Equal(corev1.PodRunning))

	driver := b.podOn("nvidia-driver-daemonset", node)
	gone := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"simulator.gpu-operator/gpus":"0"}}}`))
	b.Expect(b.client.Patch(t.Context(), b.node(node), gone)).To(Succeed())
	b.takeLabels(node, discoveryPrefix+"pci-")
	b.Eventually(func() map[string]string { return b.node(node).Annotations }).Should(HaveKey(lostSince))
	since := b.node(node).Annotations[lostSince]
	b.stop()
	b.run()
	b.Consistently(func(g Gomega) {
		g.Expect(b.podOn("nvidia-driver-daemonset", node)).To(HaveField("UID", driver.UID))
		g.Expect(b.node(node)).To(And(HaveField("Labels", HaveKeyWithValue("nvidia.com/gpu.present", "true")),
			HaveField("Annotations", HaveKeyWithValue(lostSince, since))))
	}).WithTimeout(3*grace).WithPolling(200*time.Millisecond).Should(Succeed(), "the grace period is long over")
	b.Eventually(func() []v1.NodeStatus { return b.policy().Status.Nodes }).Should(ContainElement(And(
		HaveField("Name", node), HaveField("Ready", false), HaveField("Reason", "DiscoveryLabelsMissing"),
		HaveField("Message", ContainSubstring("if no pod uses GPUs")))))

	b.Expect(b.client.Delete(t.Context(), user)).To(Succeed())
	b.Eventually(func(g Gomega) {
		left := b.node(node)
		g.Expect(left.Labels).To(HaveKeyWithValue("nvidia.com/gpu.present", "false"))
		for key := range left.Labels {
			g.Expect(key).NotTo(Or(HavePrefix("nvidia.com/gpu.deploy."), HavePrefix("nvidia.com/gpu-operator.")))
		}
		g.Expect(nodeCondition(left)).To(BeNil())
		g.Expect(left.Annotations).NotTo(HaveKey(missingSince))
		g.Expect(b.podOn("nvidia-driver-daemonset", node)).To(BeNil())
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	b.awaitReady(1)
}

// gpuPod is a pod of a user that asks for a GPU; of this node, or of any where that is empty.
func gpuPod(name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/training:1",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}},
		},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return pod
}

// takeLabels takes the labels with this prefix off a node, and returns them.
func (b *bed) takeLabels(name, prefix string) map[string]string {
	b.t.Helper()
	taken := map[string]string{}
	b.Eventually(func() error {
		node := b.node(name)
		for key, value := range node.Labels {
			if strings.HasPrefix(key, prefix) {
				taken[key] = value
				delete(node.Labels, key)
			}
		}
		return b.client.Update(b.t.Context(), node)
	}).Should(Succeed())
	b.Expect(taken).NotTo(BeEmpty())
	return taken
}

func (b *bed) putLabels(name string, labels map[string]string) {
	b.t.Helper()
	patch := mustJSON(map[string]any{"metadata": map[string]any{"labels": labels}})
	b.Expect(b.client.Patch(b.t.Context(), b.node(name), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// eachSays waits until the condition of each of these nodes is so, and its GPUs can be used.
func (b *bed) eachSays(nodes []string, what OmegaMatcher) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		for _, name := range nodes {
			g.Expect(nodeCondition(b.node(name))).To(And(Not(BeNil()), HaveField("Status", corev1.ConditionTrue), what))
		}
	}).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// generations are those of all DaemonSets, by name.
func (b *bed) generations() map[string]int64 {
	b.t.Helper()
	list := &appsv1.DaemonSetList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	found := map[string]int64{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Generation
	}
	return found
}
