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
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	discoveryPrefix = "feature.node.kubernetes.io/"
	missingSince    = "nvidia.com/gpu-operator.discovery-missing-since"
	lostSince       = "nvidia.com/gpu-operator.discovery-lost-since"
)

// TestDiscoveryLabelsFlap: discovery removes its labels from all nodes and restores them later, as when it is
// reinstalled. The nodes report that and continue to work; no pod is deleted and no DaemonSet changed, also if the
// operator restarts meanwhile. The labels are missing for longer than the grace period.
func TestDiscoveryLabelsFlap(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}}
	// A selector by a discovery label flaps too.
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{
		PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{discoveryPrefix + "pci-10de.present": "true"}},
	}
	e.create(object)
	e.awaitReady(3)
	names := []string{"gpu-00000", "gpu-00001", "gpu-00002"}
	e.eachReports(names, HaveField("Reason", "GPUReady"))
	pods, generations, mark := e.pods(), e.generations(), e.mark()
	away := map[string]map[string]string{}
	for _, name := range names {
		away[name] = e.takeLabels(name, discoveryPrefix)
	}
	e.eachReports(names, And(HaveField("Reason", "DiscoveryLabelsMissing"),
		HaveField("Message",
			MatchRegexp(`: GPUs can be used; no discovery labels since 20\S+Z; its operands are kept`))))
	e.Eventually(func(g Gomega) {
		g.Expect(e.policy().Status.Nodes).To(HaveEach(And(HaveField("Reason", "DiscoveryLabelsMissing"),
			HaveField("Ready", true))))
		g.Expect(e.policy().Status.State).To(Equal(v1.StateReady))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	since := e.node(names[0]).Annotations[missingSince]
	e.stop()
	e.run()
	e.Consistently(func() string {
		return e.node(names[0]).Annotations[missingSince]
	}).WithTimeout(2*time.Second).Should(Equal(since), "the restarted operator has the state")

	for _, name := range names {
		e.putLabels(name, away[name])
	}
	e.eachReports(names, HaveField("Reason", "GPUReady"))
	for _, name := range names {
		e.Expect(e.node(name).Annotations).NotTo(HaveKey(missingSince))
	}
	e.Expect(e.pods()).To(Equal(pods), "the same pods")
	e.Expect(e.generations()).To(Equal(generations), "the same DaemonSets")
	calls, err := e.cluster.Since(mark)
	e.Expect(err).NotTo(HaveOccurred())
	for _, call := range calls.Of("pods") {
		e.Expect(call.Verb).NotTo(HavePrefix("delete"))
	}
	writes := e.operatorCalls(mark).Writes() // They include the restart.
	e.Expect(writes.Of("daemonsets")).To(BeEmpty())
	e.Expect(len(writes.Of("nodes"))).To(BeNumerically("<=", 4*len(names)), "two changes, each recorded and reported:\n%s",
		writes)
}

// TestGPUDisappears: a GPU disappears during a workload. The node keeps its driver while the workload runs, also
// after the grace period and a restart of the operator. Then everything that the operator wrote is removed.
func TestGPUDisappears(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	const node, grace = "gpu-00000", 3 * time.Second
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: grace}}
	e.create(object)
	e.awaitReady(2)
	user := e.runGPUPod("training", node)

	driver := e.podOn("nvidia-driver-daemonset", node)
	gone := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"simulator.gpu-operator/gpus":"0"}}}`))
	e.Expect(e.client.Patch(t.Context(), e.node(node), gone)).To(Succeed())
	e.takeLabels(node, discoveryPrefix+"pci-")
	e.Eventually(func() map[string]string { return e.node(node).Annotations }).Should(HaveKey(lostSince))
	since := e.node(node).Annotations[lostSince]
	e.stop()
	e.run()
	e.Consistently(func(g Gomega) {
		g.Expect(e.podOn("nvidia-driver-daemonset", node)).To(HaveField("UID", driver.UID))
		g.Expect(e.node(node)).To(And(HaveField("Labels", HaveKeyWithValue("nvidia.com/gpu.present", "true")),
			HaveField("Annotations", HaveKeyWithValue(lostSince, since))))
	}).WithTimeout(3*grace).WithPolling(200*time.Millisecond).Should(Succeed(), "after the grace period")
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ContainElement(And(
		HaveField("Name", node), HaveField("Ready", false), HaveField("Reason", "DiscoveryLabelsMissing"),
		HaveField("Message", ContainSubstring("if no pod uses GPUs")))))

	e.Expect(e.client.Delete(t.Context(), user)).To(Succeed())
	e.Eventually(func(g Gomega) {
		left := e.node(node)
		g.Expect(left.Labels).To(HaveKeyWithValue("nvidia.com/gpu.present", "false"))
		for key := range left.Labels {
			g.Expect(key).NotTo(Or(HavePrefix("nvidia.com/gpu.deploy."), HavePrefix("nvidia.com/gpu-operator.")))
		}
		g.Expect(nodeCondition(left)).To(BeNil())
		g.Expect(left.Annotations).NotTo(HaveKey(missingSince))
		g.Expect(e.podOn("nvidia-driver-daemonset", node)).To(BeNil())
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	e.awaitReady(1)
}

// gpuPod returns a user's pod that requests a GPU, on this node, or on any node if it is empty.
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

// runGPUPod starts a pod with a GPU on the node.
func (e *env) runGPUPod(name, node string) *corev1.Pod {
	e.t.Helper()
	user := gpuPod(name, node)
	e.create(user)
	e.Eventually(func() corev1.PodPhase {
		e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(user), user)).To(Succeed())
		return user.Status.Phase
	}).Should(Equal(corev1.PodRunning))
	return user
}

// takeLabels removes the labels with this prefix from a node, and returns them.
func (e *env) takeLabels(name, prefix string) map[string]string {
	e.t.Helper()
	taken := map[string]string{}
	e.Eventually(func() error {
		node := e.node(name)
		for key, value := range node.Labels {
			if strings.HasPrefix(key, prefix) {
				taken[key] = value
				delete(node.Labels, key)
			}
		}
		return e.client.Update(e.t.Context(), node)
	}).Should(Succeed())
	e.Expect(taken).NotTo(BeEmpty())
	return taken
}

func (e *env) putLabels(name string, labels map[string]string) {
	e.t.Helper()
	e.patchNode(name, map[string]any{"labels": labels})
}

// patchNode merges into the metadata of a node.
func (e *env) patchNode(name string, metadata map[string]any) {
	e.t.Helper()
	patch := mustJSON(map[string]any{"metadata": metadata})
	e.Expect(e.client.Patch(e.t.Context(), e.node(name),
		client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// eachReports waits until the condition of each of these nodes matches, and its GPUs can be used.
func (e *env) eachReports(nodes []string, what OmegaMatcher) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		for _, name := range nodes {
			g.Expect(nodeCondition(e.node(name))).To(And(Not(BeNil()), HaveField("Status", corev1.ConditionTrue), what))
		}
	}).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// generations returns those of all DaemonSets, by name.
func (e *env) generations() map[string]int64 {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	found := map[string]int64{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Generation
	}
	return found
}
