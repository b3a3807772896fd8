package integration

import (
	"fmt"
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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const brokenNode = "gpu-00003"

// TestOneBrokenNode: a driver that fails on one node of eight is reported with node, stage, container and cause, and
// does not delay the others.
func TestOneBrokenNode(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	unbroken := newEnv(t, envOptions{nodes: 8, timing: simulator.DefaultTiming()})
	e := newEnv(t, envOptions{nodes: 8, timing: simulator.DefaultTiming()})
	e.sim.Break("driver", brokenNode, simulator.CrashLoop)
	// Both run concurrently, so that a busy machine delays both.
	unbroken.run()
	e.run()
	unbroken.create(unbroken.samplePolicy())
	e.create(e.samplePolicy())
	begin, eight, seven := time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
	e.Eventually(func() []int {
		return []int{unbroken.noteReady(begin, eight), e.noteReady(begin, seven)}
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Equal([]int{8, 7}))
	t.Logf("p95 of the seven: %s, of an unbroken run: %s", percentile95(seven), percentile95(eight))
	if cluster.FullCampaigns() { // On a busy machine the ratio is that of its other work.
		e.Expect(percentile95(seven)).To(BeNumerically("<=", 2*percentile95(eight)),
			"a wait for the broken node would take longer")
	}
	e.namesTheCulprit()
	e.sim.Heal("driver", brokenNode)
	// The container must run for a minute before it counts as recovered; its driver is then validated, as its startup
	// probe succeeds.
	e.awaitReady(8)
}

// noteReady adds the nodes that have become ready, each with the time since begin, and returns their number.
func (e *env) noteReady(begin time.Time, times map[string]time.Duration) int {
	e.t.Helper()
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(e.t.Context(), nodes)).To(Succeed())
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

func (e *env) namesTheCulprit() {
	e.t.Helper()
	// It ends with the error in the log of the container, which logs more afterwards.
	const cause = "container nvidia-driver-ctr: CrashLoopBackOff, exit code 1: simulated failure"
	e.Eventually(func(g Gomega) {
		status := e.policy().Status
		g.Expect(status.State).To(Equal(v1.StateNotReady))
		g.Expect(status.NodeSummary).To(And(HaveField("ReadyOfTotal", "7/8"), HaveField("Degraded", int32(1))))
		g.Expect(status.Nodes).To(HaveLen(8))
		g.Expect(status.Nodes[0]).To(And(
			HaveField("Name", brokenNode), HaveField("Ready", false), HaveField("Stage", v1.StageDriver),
			HaveField("Operand", "driver"), HaveField("Reason", "CrashLoopBackOff"),
			HaveField("Message", cause), HaveField("Since", Not(BeNil()))))
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Degraded"),
			HaveField("Status", BeEquivalentTo("True")), HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(status.Operands).To(ContainElement(And(HaveField("Name", "driver"), HaveField("State", v1.OperandDegraded),
			HaveField("Desired", int32(8)), HaveField("Ready", int32(7)), HaveField("Message", ContainSubstring(brokenNode)))))
		g.Expect(nodeCondition(e.node(brokenNode))).To(And(HaveField("Status", corev1.ConditionFalse),
			HaveField("Reason", "CrashLoopBackOff"), HaveField("Message", brokenNode+": stage Driver, operand driver: "+cause)))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// TestLabelsOfOthersStay: labels by users, mig-manager and the driver manager are respected and never overwritten.
func TestLabelsOfOthersStay(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	for name, labels := range map[string]map[string]string{
		"host-driver": {"nvidia.com/gpu.deploy.driver": "pre-installed"},
		"excluded":    {"nvidia.com/gpu.deploy.operands": "false"},
		"paused":      {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"},
		"empty":       {"nvidia.com/gpu.deploy.driver": ""},
	} {
		_, err := e.sim.AddNode(t.Context(),
			simulator.NodeSpec{Name: name, Labels: labels, DriverOnHost: name == "host-driver"})
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.run()
	e.create(e.samplePolicy())
	e.Eventually(func(g Gomega) {
		summary := e.policy().Status.NodeSummary
		g.Expect(summary).NotTo(BeNil())
		g.Expect(summary).To(And(HaveField("ReadyOfTotal", "3/4"), HaveField("Excluded", int32(1))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	e.Expect(e.node("host-driver").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "pre-installed"))
	e.Expect(e.node("paused").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin",
		"paused-for-driver-upgrade"))
	e.Expect(e.node("empty").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"))
	e.Expect(e.node("excluded").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.driver"))
	e.Expect(e.podOn("nvidia-driver-daemonset", "host-driver")).To(BeNil())
	// Waiting is not a failure: it is published after the dwell time.
	e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node("paused")) }).
		Should(HaveField("Message", ContainSubstring("nvidia.com/gpu.deploy.device-plugin")))
	e.Expect(nodeCondition(e.node("excluded"))).To(HaveField("Reason", v1.ReasonExcluded))
}

// TestLostDiscoveryRemovesNothing: a restart of node discovery temporarily removes its labels; the operands, above
// all the driver, stay.
func TestLostDiscoveryRemovesNothing(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	before := e.podOn("nvidia-driver-daemonset", "gpu-00000")
	e.Expect(before).NotTo(BeNil())
	for _, lost := range []struct{ labels, reported string }{
		{"feature.node.kubernetes.io/pci", "discovery labels show no GPU"},
		{"feature.node.kubernetes.io/", "no discovery labels"},
	} {
		e.takeLabels("gpu-00000", lost.labels)
		e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ConsistOf(
			HaveField("Message", ContainSubstring(lost.reported))), "the operator has noticed")
		e.Consistently(func(g Gomega) {
			g.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
			g.Expect(e.node("gpu-00000").Labels).To(HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"))
			g.Expect(e.policy().Status.State).To(Equal(v1.StateReady))
		}).WithTimeout(5 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
	}
}

// TestChangedDriverWaitsForTheAdministrator: a new driver version does not replace pods automatically; the node is
// reported as outdated, with the command that updates it.
func TestChangedDriverWaitsForTheAdministrator(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	before := e.podOn("nvidia-driver-daemonset", "gpu-00000")
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Version = "610.57.04" })
	e.Eventually(func(g Gomega) {
		status := e.policy().Status
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"),
			HaveField("Reason", v1.ReasonUpgradePending))))
		g.Expect(status.NodeSummary).To(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "1/1")))
		g.Expect(status.Nodes[0].Message).
			To(ContainSubstring("kubectl annotate node gpu-00000 " + labels.UpgradeRequested + "=true"))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	e.Expect(nodeCondition(e.node("gpu-00000"))).To(HaveField("Status", corev1.ConditionTrue))
	e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
	e.deletePod("nvidia-driver-daemonset", "gpu-00000")
	e.awaitReady(1)
	e.Expect(e.podOn("nvidia-driver-daemonset",
		"gpu-00000").Spec.Containers[0].Image).To(ContainSubstring("610.57.04-ubuntu24.04"))
}

// TestChangedOSIsHeldAndReported: a node whose operating system has changed keeps its driver, is reported as
// outdated, and moves to its new pool when an administrator takes it out of the old one.
func TestChangedOSIsHeldAndReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	before := e.podOn("nvidia-driver-daemonset", "gpu-00000")
	e.relabel("gpu-00000", "feature.node.kubernetes.io/system-os_release.VERSION_ID", "26.04")
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).
		Should(ContainElement(And(HaveField("Reason", v1.ReasonUpgradePending),
			HaveField("Message",
				ContainSubstring("kubectl annotate node gpu-00000 "+labels.UpgradeRequested+"=true; it moves from ubuntu24.04")))))
	e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
	e.moveDriver("gpu-00000")
	e.Eventually(func() string { return e.node("gpu-00000").Labels["nvidia.com/gpu-operator.pool"] }).
		Should(Equal("ubuntu26.04-amd64"))
	e.awaitReady(1)
	e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000").Spec.Containers[0].Image).To(HaveSuffix("-ubuntu26.04"))
}

// moveDriver takes a node out of its driver pool by hand, without an upgrade.
func (e *env) moveDriver(node string) {
	e.t.Helper()
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+labels.Pool+`":null,"`+labels.DriverAnchor+`":null}}}`))
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)).To(Succeed())
}

// requestUpgrade requests the upgrade of a node's driver, as the reported command does.
func (e *env) requestUpgrade(node string) {
	e.t.Helper()
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, labels.UpgradeRequested))
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)).To(Succeed())
}

// TestPrecompiledDriversRollOutNodeByNode: spec.driver.usePrecompiled is enabled while drivers run. None of them is
// replaced and their DaemonSet is not written; a joining node gets the driver for its kernel, and an existing node
// gets it by the reported command.
func TestPrecompiledDriversRollOutNodeByNode(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	pod := e.podOn("nvidia-driver-daemonset", "gpu-00000")
	const built = "DaemonSet nvidia-driver-daemonset"
	before := e.written()[built]
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UsePrecompiled, spec.Driver.Version = new(true), "595" })
	// A node that joins before the operator has observed that gets the driver that is built.
	e.Eventually(func() int32 { return e.policy().Status.NodeSummary.Upgrading }).Should(Equal(int32(1)))
	joined, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Kernel: "6.8.0-71-generic"})
	e.Expect(err).NotTo(HaveOccurred())
	e.Eventually(func(g Gomega) {
		status := e.policy().Status
		g.Expect(status.NodeSummary).To(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "2/2")))
		g.Expect(status.Nodes[0].Message).
			To(ContainSubstring("kubectl annotate node gpu-00000 " + labels.UpgradeRequested + "=true"))
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	e.Expect(e.podOn("nvidia-driver-daemonset",
		joined).Spec.Containers[0].Image).To(HaveSuffix("/driver:595-6.8.0-71-generic-ubuntu24.04"))
	e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", pod.UID))
	e.Expect(e.written()).To(HaveKeyWithValue(built, before))
	e.requestUpgrade("gpu-00000")
	e.Eventually(func() *corev1.Pod { return e.podOn("nvidia-driver-daemonset", "gpu-00000") }).WithTimeout(time.Minute).
		Should(And(Not(BeNil()), HaveField("Spec.Containers",
			ContainElement(HaveField("Image", HaveSuffix("/driver:595-6.8.0-60-generic-ubuntu24.04"))))))
	e.awaitReady(2)
	e.Expect(e.written()).NotTo(HaveKey(built), "no node needs it any more")
}
