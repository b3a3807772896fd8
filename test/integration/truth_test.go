package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAnOverdueStageIsNamed: a device plugin that never gets ready on one node of eight is no failure of any
// container. Once its deadline has passed, status, condition and one Event each on the node and the policy name
// node and cause, within 10 s. The others are ready, nothing is written or listed while it lasts, a restart tells
// nothing again, and the end is told once.
func TestAnOverdueStageIsNamed(t *testing.T) {
	t.Parallel()
	const deadline = 12 * time.Second // More than a common start takes on a busy machine.
	b := newBed(t, bedOptions{nodes: 8, timing: simulator.DefaultTiming().Scale(0.1)})
	b.sim.Break("device-plugin", brokenNode, simulator.NeverReady)
	b.run()
	object := b.samplePolicy()
	object.Spec.Deadlines = &v1.DeadlinesSpec{DevicePlugin: v1.Deadline(deadline.String())}
	b.create(object)
	const cause = "not ready after 12s: container nvidia-device-plugin is not ready"
	b.Eventually(func(g Gomega) {
		status := b.policy().Status
		g.Expect(status.NodeSummary).To(And(Not(BeNil()), HaveField("ReadyOfTotal", "7/8"), HaveField("Degraded", int32(1))))
		g.Expect(status.Nodes[0]).To(And(HaveField("Name", brokenNode), HaveField("Stage", v1.StageDevicePlugin),
			HaveField("Operand", "device-plugin"), HaveField("Reason", v1.ReasonStarting), HaveField("Message", cause)))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Degraded"), HaveField("Status", BeEquivalentTo("True")),
			HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(status.Operands).To(ContainElement(And(HaveField("Name", "device-plugin"), HaveField("State", v1.OperandDegraded))))
	}).WithTimeout(readyTime).WithPolling(200 * time.Millisecond).Should(Succeed())
	condition := nodeCondition(b.node(brokenNode))
	b.Expect(condition).To(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", v1.ReasonStarting),
		HaveField("Message", brokenNode+": stage DevicePlugin, operand device-plugin: "+cause)))
	toolkit := b.podOn("nvidia-container-toolkit-daemonset", brokenNode)
	b.Expect(toolkit).NotTo(BeNil())
	late := condition.LastHeartbeatTime.Sub(readySince(toolkit).Add(deadline))
	b.t.Logf("the condition was written %s after the deadline, by clocks that tell seconds", late)
	b.Expect(late).To(BeNumerically("<=", 10*time.Second))

	failure := ConsistOf(And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonStarting), HaveField("Message", condition.Message), HaveField("Count", int32(1))))
	b.settled()
	b.Expect(b.eventsAbout("Node", brokenNode)).To(failure)
	b.Expect(b.eventsAbout("ClusterPolicy", policy)).To(ConsistOf(And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonOperandFailed),
		HaveField("Message", And(ContainSubstring(brokenNode), ContainSubstring("DevicePlugin: Starting"))))))
	b.Expect(b.eventsAbout("Node", "")).To(HaveLen(1), "of the eight that came up, one has something to tell")

	b.stop()
	mark := b.mark()
	b.run()
	b.quietSince("a restart and 5 s with a node that is overdue", mark, 5*time.Second)
	b.Expect(b.operatorCalls(mark).Of("events")).To(BeEmpty())

	b.sim.Heal("device-plugin", brokenNode)
	b.awaitReady(8)
	b.Eventually(func() []corev1.Event { return b.eventsAbout("Node", brokenNode) }).Should(ContainElement(
		And(HaveField("Type", "Normal"), HaveField("Reason", v1.ReasonGPUReady))))
	b.Expect(b.eventsAbout("Node", brokenNode)).To(HaveLen(2))
	b.Expect(b.eventsAbout("ClusterPolicy", policy)).To(And(HaveLen(2), ContainElement(And(HaveField("Type", "Normal"),
		HaveField("Message", HavePrefix("no longer degraded: "))))))
}

func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// eventsAbout are the operator's Events about objects of this kind, or about the one of this name.
func (b *bed) eventsAbout(kind, name string) []corev1.Event {
	b.t.Helper()
	list := &corev1.EventList{}
	b.Expect(b.client.List(b.t.Context(), list, client.MatchingFields{"involvedObject.kind": kind, "source": account})).To(Succeed())
	var found []corev1.Event
	for _, event := range list.Items {
		if name == "" || event.InvolvedObject.Name == name {
			b.Expect(event.Namespace).To(Equal(metav1.NamespaceDefault))
			found = append(found, event)
		}
	}
	return found
}

// TestMissingPodsAreExplained: a pod that a node lacks is told with what keeps it away: a taint of that node, the
// Pod Security level of the namespace, a quota.
func TestMissingPodsAreExplained(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{
		Name: "tainted", Taints: []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}},
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	b.create(b.samplePolicy())
	b.tells("tainted", v1.ReasonUntoleratedTaint, "taint team=ml:NoSchedule is not tolerated by DaemonSet nvidia-driver-daemonset")
	b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).Should(ContainElement(And(
		HaveField("Name", "driver"), HaveField("Reason", v1.ReasonNotScheduled), HaveField("Message", "kept off 1 of 3 nodes: tainted (UntoleratedTaint)"))))
	b.Expect(b.eventsAbout("Node", "")).To(BeEmpty(), "a taint may pass by itself")
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tainted"}}, `{"spec": {"taints": null}}`)
	b.awaitReady(3)

	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	b.patch(own, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	b.deletePod("nvidia-driver-daemonset", "gpu-00001")
	b.tells("gpu-00001", v1.ReasonPodSecurityDenied, "cannot create its pod: violates PodSecurity")
	b.Eventually(func() []corev1.Event { return b.eventsAbout("Node", "gpu-00001") }).Should(ConsistOf(
		And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonPodSecurityDenied), HaveField("Message", ContainSubstring("privileged")))))

	b.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	})
	b.Eventually(func() corev1.ResourceList {
		quota := &corev1.ResourceQuota{}
		b.Expect(b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "small"}, quota)).To(Succeed())
		return quota.Status.Used
	}).ShouldNot(BeEmpty())
	b.patch(own, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}}`)
	b.deletePod("nvidia-device-plugin-daemonset", "gpu-00000")
	b.tells("gpu-00000", v1.ReasonQuotaExceeded, "DaemonSet nvidia-device-plugin-daemonset cannot create its pod: exceeded quota: small")
}

// tells waits until status and condition of a node have this reason, and the message has these words.
func (b *bed) tells(node, reason, words string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		g.Expect(b.policy().Status.Nodes).To(ContainElement(And(HaveField("Name", node), HaveField("Ready", false),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(words)))))
		g.Expect(nodeCondition(b.node(node))).To(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(words))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// patch merges into an object.
func (b *bed) patch(object client.Object, patch string) {
	b.t.Helper()
	b.Expect(b.client.Patch(b.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
