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
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAnOverdueStageIsNamed: a device plugin that never becomes ready on one node of eight is not a failure of any
// container. Once its deadline has passed, status, condition and one Event each on the node and the policy report
// node and cause, within 10 s. The others are ready, nothing is written or listed while it lasts, a restart does not
// repeat Events, and the recovery is reported once.
func TestAnOverdueStageIsNamed(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const deadline = 12 * time.Second // Longer than a normal start on a busy machine.
	e := newEnv(t, envOptions{nodes: 8, timing: simulator.DefaultTiming().Scale(0.1)})
	e.sim.Break("device-plugin", brokenNode, simulator.NeverReady)
	e.run()
	object := e.samplePolicy()
	object.Spec.Deadlines = &v1.DeadlinesSpec{DevicePlugin: v1.Deadline(deadline.String())}
	e.create(object)
	const cause = "not ready after 12s: container nvidia-device-plugin is not ready"
	e.Eventually(func(g Gomega) {
		status := e.policy().Status
		g.Expect(status.NodeSummary).To(And(Not(BeNil()), HaveField("ReadyOfTotal", "7/8"), HaveField("Degraded", int32(1))))
		g.Expect(status.Nodes[0]).To(And(HaveField("Name", brokenNode), HaveField("Stage", v1.StageDevicePlugin),
			HaveField("Operand", "device-plugin"), HaveField("Reason", v1.ReasonStarting), HaveField("Message", cause)))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Degraded"),
			HaveField("Status", BeEquivalentTo("True")),
			HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(status.Operands).To(ContainElement(And(HaveField("Name", "device-plugin"),
			HaveField("State", v1.OperandDegraded))))
	}).WithTimeout(readyTime).WithPolling(200 * time.Millisecond).Should(Succeed())
	condition := nodeCondition(e.node(brokenNode))
	e.Expect(condition).To(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", v1.ReasonStarting),
		HaveField("Message", brokenNode+": stage DevicePlugin, operand device-plugin: "+cause)))
	toolkit := e.podOn("nvidia-container-toolkit-daemonset", brokenNode)
	e.Expect(toolkit).NotTo(BeNil())
	late := condition.LastHeartbeatTime.Sub(readySince(toolkit).Add(deadline))
	e.t.Logf("the condition was written %s after the deadline, with a precision of one second", late)
	if cluster.FullCampaigns() {
		e.Expect(late).To(BeNumerically("<=", 10*time.Second))
	}

	failure := ConsistOf(And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonStarting),
		HaveField("Message", condition.Message), HaveField("Count", int32(1))))
	e.settled()
	e.Expect(e.eventsAbout("Node", brokenNode)).To(failure)
	e.Expect(e.eventsAbout("ClusterPolicy",
		policy)).To(ConsistOf(And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonOperandFailed),
		HaveField("Message", And(ContainSubstring(brokenNode), ContainSubstring("DevicePlugin: Starting"))))))
	e.Expect(e.eventsAbout("Node", "")).To(HaveLen(1), "of the eight nodes, one has an Event")

	e.stop()
	mark := e.mark()
	e.run()
	e.quietSince("a restart and 5 s with an overdue node", mark, 5*time.Second)
	e.Expect(e.operatorCalls(mark).Events()).To(BeEmpty())

	e.sim.Heal("device-plugin", brokenNode)
	e.awaitReady(8)
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", brokenNode) }).Should(ContainElement(
		And(HaveField("Type", "Normal"), HaveField("Reason", v1.ReasonGPUReady))))
	e.Expect(e.eventsAbout("Node", brokenNode)).To(HaveLen(2))
	e.Expect(e.eventsAbout("ClusterPolicy", policy)).To(And(HaveLen(2), ContainElement(And(HaveField("Type", "Normal"),
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

// eventsAbout returns the operator's Events about objects of this kind, or about the one of this name.
func (e *env) eventsAbout(kind, name string) []corev1.Event {
	e.t.Helper()
	list := &corev1.EventList{}
	e.Expect(e.client.List(e.t.Context(), list,
		client.MatchingFields{"involvedObject.kind": kind, "source": account})).To(Succeed())
	var found []corev1.Event
	for _, event := range list.Items {
		if name == "" || event.InvolvedObject.Name == name {
			e.Expect(event.Namespace).To(Equal(metav1.NamespaceDefault))
			found = append(found, event)
		}
	}
	return found
}

// TestMissingPodsAreExplained: a missing pod of a node is reported with the cause: a taint of that node, the Pod
// Security level of the namespace, a quota.
func TestMissingPodsAreExplained(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{
		Name: "tainted", Taints: []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}},
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.create(e.samplePolicy())
	e.nodeReports("tainted", v1.ReasonUntoleratedTaint,
		"taint team=ml:NoSchedule is not tolerated by DaemonSet nvidia-driver-daemonset")
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).Should(ContainElement(And(
		HaveField("Name", "driver"), HaveField("Reason", v1.ReasonNotScheduled), HaveField("Message",
			"not scheduled on 1 of 3 nodes: tainted (UntoleratedTaint)"))))
	e.Expect(e.eventsAbout("Node", "")).To(BeEmpty(), "a taint may be temporary")
	e.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tainted"}}, `{"spec": {"taints": null}}`)
	e.awaitReady(3)

	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	e.patch(own, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	e.deletePod("nvidia-driver-daemonset", "gpu-00001")
	e.nodeReports("gpu-00001", v1.ReasonPodSecurityDenied, "cannot create its pod: violates PodSecurity")
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", "gpu-00001") }).Should(ConsistOf(
		And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonPodSecurityDenied),
			HaveField("Message", ContainSubstring("privileged")))))

	e.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	})
	e.Eventually(func() corev1.ResourceList {
		quota := &corev1.ResourceQuota{}
		e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "small"}, quota)).To(Succeed())
		return quota.Status.Used
	}).ShouldNot(BeEmpty())
	e.patch(own, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}}`)
	e.deletePod("nvidia-device-plugin-daemonset", "gpu-00000")
	e.nodeReports("gpu-00000", v1.ReasonQuotaExceeded,
		"DaemonSet nvidia-device-plugin-daemonset cannot create its pod: exceeded quota: small")
}

// nodeReports waits until status and condition of a node have this reason, and the message contains this text.
func (e *env) nodeReports(node, reason, words string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.policy().Status.Nodes).To(ContainElement(And(HaveField("Name", node), HaveField("Ready", false),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(words)))))
		g.Expect(nodeCondition(e.node(node))).To(And(HaveField("Reason", reason),
			HaveField("Message", ContainSubstring(words))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// patch merges into an object.
func (e *env) patch(object client.Object, patch string) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
