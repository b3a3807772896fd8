package integration

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const brokenNode = "gpu-00003"

// TestOneBrokenNode: a driver that fails on one node of eight is named with node, stage, container and
// cause, and holds up none of the others.
func TestOneBrokenNode(t *testing.T) {
	t.Parallel()
	unbroken := newBed(t, bedOptions{nodes: 8, timing: simulator.DefaultTiming()})
	b := newBed(t, bedOptions{nodes: 8, timing: simulator.DefaultTiming()})
	b.sim.Break("driver", brokenNode, simulator.CrashLoop)
	// Both at once, so that a busy machine delays both.
	unbroken.run()
	b.run()
	unbroken.create(unbroken.samplePolicy())
	b.create(b.samplePolicy())
	begin, eight, seven := time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
	b.Eventually(func() []int {
		return []int{unbroken.noteReady(begin, eight), b.noteReady(begin, seven)}
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Equal([]int{8, 7}))
	t.Logf("p95 of the seven: %s, of an unbroken run: %s", percentile95(seven), percentile95(eight))
	b.Expect(percentile95(seven)).To(BeNumerically("<=", 2*percentile95(eight)), "whoever waits for the broken node waits for longer")
	b.namesTheCulprit()
	b.sim.Heal("driver", brokenNode)
	// The container must run for a minute before it counts as recovered; its driver then proves
	// itself, as its start-up probe passes.
	b.awaitReady(8)
}

// noteReady adds the nodes that have become ready, each with the time since begin, and returns how many there are.
func (b *bed) noteReady(begin time.Time, times map[string]time.Duration) int {
	b.t.Helper()
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(b.t.Context(), nodes)).To(Succeed())
	for i := range nodes.Items {
		condition := nodeCondition(&nodes.Items[i])
		if _, known := times[nodes.Items[i].Name]; !known && condition != nil && condition.Status == corev1.ConditionTrue {
			times[nodes.Items[i].Name] = time.Since(begin)
		}
	}
	return len(times)
}

func percentile95(times map[string]time.Duration) time.Duration {
	sorted := slices.Sorted(maps.Values(times))
	return sorted[(len(sorted)*95+99)/100-1]
}

func (b *bed) namesTheCulprit() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		status := b.policy().Status
		g.Expect(status.State).To(Equal(v1.StateNotReady))
		g.Expect(status.NodeSummary).To(And(HaveField("ReadyOfTotal", "7/8"), HaveField("Degraded", int32(1))))
		g.Expect(status.Nodes).To(HaveLen(8))
		g.Expect(status.Nodes[0]).To(And(
			HaveField("Name", brokenNode), HaveField("Ready", false), HaveField("Stage", v1.StageDriver),
			HaveField("Operand", "driver"), HaveField("Reason", "CrashLoopBackOff"),
			HaveField("Message", ContainSubstring("nvidia-driver-ctr")), HaveField("Since", Not(BeNil()))))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Degraded"),
			HaveField("Status", BeEquivalentTo("True")), HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(status.Operands).To(ContainElement(And(HaveField("Name", "driver"), HaveField("State", v1.OperandDegraded),
			HaveField("Desired", int32(8)), HaveField("Ready", int32(7)), HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(nodeCondition(b.node(brokenNode))).To(And(HaveField("Status", corev1.ConditionFalse),
			HaveField("Reason", "CrashLoopBackOff"), HaveField("Message", And(ContainSubstring(brokenNode),
				ContainSubstring("stage Driver"), ContainSubstring("nvidia-driver-ctr"), ContainSubstring("exit code 1")))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// TestLabelsOfOthersStay: what users, pausers and the driver manager wrote on a node is honoured and
// never overwritten.
func TestLabelsOfOthersStay(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	for name, labels := range map[string]map[string]string{
		"host-driver": {"nvidia.com/gpu.deploy.driver": "pre-installed"},
		"excluded":    {"nvidia.com/gpu.deploy.operands": "false"},
		"paused":      {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"},
		"empty":       {"nvidia.com/gpu.deploy.driver": ""},
	} {
		_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: name, Labels: labels, DriverOnHost: name == "host-driver"})
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.run()
	b.create(b.samplePolicy())
	b.Eventually(func(g Gomega) {
		summary := b.policy().Status.NodeSummary
		g.Expect(summary).NotTo(BeNil())
		g.Expect(summary).To(And(HaveField("ReadyOfTotal", "3/4"), HaveField("Excluded", int32(1))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	b.Expect(b.node("host-driver").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "pre-installed"))
	b.Expect(b.node("paused").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade"))
	b.Expect(b.node("empty").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"))
	b.Expect(b.node("excluded").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.driver"))
	b.Expect(b.podOn("nvidia-driver-daemonset", "host-driver")).To(BeNil())
	// Waiting is no failure: it is written once it has lasted.
	b.Eventually(func() *corev1.NodeCondition { return nodeCondition(b.node("paused")) }).
		Should(HaveField("Message", ContainSubstring("nvidia.com/gpu.deploy.device-plugin")))
	b.Expect(nodeCondition(b.node("excluded"))).To(HaveField("Reason", v1.ReasonExcluded))
}

// TestLostDiscoveryRemovesNothing: a restart of node discovery takes its labels away for a while; the
// operands, above all the driver, stay.
func TestLostDiscoveryRemovesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	before := b.podOn("nvidia-driver-daemonset", "gpu-00000")
	b.Expect(before).NotTo(BeNil())
	for _, lost := range []string{"feature.node.kubernetes.io/pci", "feature.node.kubernetes.io/"} {
		b.takeLabels("gpu-00000", lost)
		b.Consistently(func(g Gomega) {
			g.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
			g.Expect(b.node("gpu-00000").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"))
			g.Expect(b.policy().Status.State).To(Equal(v1.StateReady))
		}).WithTimeout(5 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
	}
}

// TestChangedDriverWaitsForAPerson: a new driver version replaces no pod by itself; the node is told to
// be outdated, with the command that updates it.
func TestChangedDriverWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	before := b.podOn("nvidia-driver-daemonset", "gpu-00000")
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Version = "610.57.04" })
	b.Eventually(func(g Gomega) {
		status := b.policy().Status
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", v1.ReasonUpgradePending))))
		g.Expect(status.NodeSummary).To(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "1/1")))
		g.Expect(status.Nodes[0].Message).To(ContainSubstring("kubectl -n gpu-operator delete pod " + before.Name))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	b.Expect(nodeCondition(b.node("gpu-00000"))).To(HaveField("Status", corev1.ConditionTrue))
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
	b.deletePod("nvidia-driver-daemonset", "gpu-00000")
	b.awaitReady(1)
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000").Spec.Containers[0].Image).To(ContainSubstring("610.57.04-ubuntu24.04"))
}

// TestChangedOSIsHeldAndReported: a node whose operating system has changed keeps its driver, is told to
// be outdated, and moves to its new pool by the command that it is told.
func TestChangedOSIsHeldAndReported(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	before := b.podOn("nvidia-driver-daemonset", "gpu-00000")
	b.relabel("gpu-00000", "feature.node.kubernetes.io/system-os_release.VERSION_ID", "26.04")
	b.Eventually(func() []v1.NodeStatus { return b.policy().Status.Nodes }).
		Should(ContainElement(And(HaveField("Reason", v1.ReasonUpgradePending),
			HaveField("Message", ContainSubstring("kubectl label node gpu-00000 nvidia.com/gpu-operator.pool- clusterpolicy.github.io/driver- ")))))
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
	b.moveDriver("gpu-00000")
	b.Eventually(func() string { return b.node("gpu-00000").Labels["nvidia.com/gpu-operator.pool"] }).
		Should(Equal("ubuntu26.04-amd64"))
	b.awaitReady(1)
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000").Spec.Containers[0].Image).To(HaveSuffix("-ubuntu26.04"))
}

// moveDriver does what the message of a node says whose driver is that of another pool.
func (b *bed) moveDriver(node string) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+labels.Pool+`":null,"`+labels.DriverAnchor+`":null}}}`))
	b.Expect(b.client.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)).To(Succeed())
}

// TestPrecompiledDriversAreTakenUpNodeByNode: spec.driver.usePrecompiled is switched on while drivers
// run. None of them is replaced and their DaemonSet is not written; a node that joins gets the driver for
// its kernel, and one that ran before does by the command that it is told.
func TestPrecompiledDriversAreTakenUpNodeByNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	pod := b.podOn("nvidia-driver-daemonset", "gpu-00000")
	const built = "DaemonSet nvidia-driver-daemonset"
	before := b.written()[built]
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UsePrecompiled, spec.Driver.Version = new(true), "595" })
	// Who joins before the operator has seen that gets the driver that is built.
	b.Eventually(func() int32 { return b.policy().Status.NodeSummary.Upgrading }).Should(Equal(int32(1)))
	joined, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Kernel: "6.8.0-71-generic"})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		status := b.policy().Status
		g.Expect(status.NodeSummary).To(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "2/2")))
		g.Expect(status.Nodes[0].Message).To(ContainSubstring("kubectl label node gpu-00000 nvidia.com/gpu-operator.pool- clusterpolicy.github.io/driver- "))
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	b.Expect(b.podOn("nvidia-driver-daemonset", joined).Spec.Containers[0].Image).To(HaveSuffix("/driver:595-6.8.0-71-generic-ubuntu24.04"))
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", pod.UID))
	b.Expect(b.written()).To(HaveKeyWithValue(built, before))
	b.moveDriver("gpu-00000")
	b.Eventually(func() *corev1.Pod { return b.podOn("nvidia-driver-daemonset", "gpu-00000") }).
		Should(And(Not(BeNil()), HaveField("Spec.Containers", ContainElement(HaveField("Image", HaveSuffix("/driver:595-6.8.0-60-generic-ubuntu24.04"))))))
	b.awaitReady(2)
	b.Expect(b.written()).NotTo(HaveKey(built), "nobody needs it any more")
}
