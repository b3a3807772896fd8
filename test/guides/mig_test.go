package guides

import (
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// Reasons of a node, and layouts that users type.
const (
	reasonPending = "MIGConfigPending"
	reasonFailed  = "MIGConfigFailed"
	sevenSmall    = "all-1g.10gb"
	disabled      = "all-disabled"
)

// layout requests a MIG layout for a node.
func (e *env) layout(node, name string) {
	e.t.Helper()
	e.label(node, migLabel, name)
}

// expectState waits until the MIG manager reports a state.
func (e *env) expectState(node, state string) {
	e.t.Helper()
	e.Eventually(func() map[string]string { return e.node(node).Labels }).WithTimeout(readyTime).
		Should(HaveKeyWithValue(migState, state), e.describe(node))
}

// expectPaused waits until the MIG manager has paused the operands, and their pods are gone.
func (e *env) expectPaused(node string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.node(node).Labels).To(And(HaveKeyWithValue(migState, "pending"),
			HaveKeyWithValue(deployPrefix+"device-plugin", "paused-for-mig-change")))
		g.Expect(e.operandPods(node)).NotTo(HaveKey("nvidia-device-plugin-daemonset"))
	}).WithTimeout(readyTime).Should(Succeed(), e.describe(node))
}

func sevenDevices(e *env) {
	e.layout("seven", sevenSmall)
	e.expectAllocatable("seven", map[string]int64{slice10: 7})
	e.expectState("seven", "success")
	pods := e.createPods(request{name: "seven", resource: slice10, on: "seven"}, 8)
	e.expectOneWaits(pods, insufficient(slice10))
	e.expectReady("seven")
	e.Expect(e.node("seven").Labels).To(And(HaveKeyWithValue("nvidia.com/mig-1g.10gb.count", "7"),
		HaveKeyWithValue("nvidia.com/mig.strategy", "mixed"),
		HaveKeyWithValue("nvidia.com/mig-1g.10gb.product", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")))
	e.Eventually(func() *v1.NodeStatus { return e.verdict("seven") }).
		Should(HaveField("GPUs", And(HaveField("Total", int32(1)), HaveField("Usable", int32(1)))))
}

func deviceOfOneNode(e *env) {
	pod := request{name: "medium", resource: slice20}.pod()
	e.create(pod)
	e.expectWaiting(pod, insufficient(slice20))
	e.layout("balanced", "all-balanced")
	e.expectAllocatable("balanced", map[string]int64{slice10: 2, slice20: 1, slice40: 1})
	e.expectRunning(pod)
	e.Expect(pod.Spec.NodeName).To(Equal("balanced"))
	e.expectReady("balanced")
}

func twentyEight(e *env) {
	e.layout("single", sevenSmall)
	e.expectAllocatable("single", map[string]int64{wholeGPU: 7})
	e.expectReady("single")
	e.label("single", configLabel, "mig-sliced")
	e.expectAllocatable("single", map[string]int64{wholeGPU: 28})
	e.expectRunning(e.createPods(request{name: "of-28", resource: wholeGPU, on: "single"}, 28)...)
	e.Eventually(func() map[string]string { return e.node("single").Labels }).
		Should(And(HaveKeyWithValue(productLabel, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"),
			HaveKeyWithValue("nvidia.com/gpu.replicas", "4")))
	e.expectReady("single")
}

func unknownLayout(e *env) {
	before := e.uids("unknown-layout")
	e.layout("unknown-layout", "all-1g.12gb")
	found := e.expectReported("unknown-layout", reasonFailed)
	e.Expect(found.Message).To(ContainSubstring("all-1g.12gb"))
	e.Expect(e.uids("unknown-layout")).To(Equal(before))
	e.layout("unknown-layout", disabled)
	e.expectReady("unknown-layout")
}

func busyGPU(e *env) {
	tenant := request{name: "tenant", resource: wholeGPU, on: "busy"}.pod()
	e.create(tenant)
	e.expectRunning(tenant)
	e.layout("busy", sevenSmall)
	e.expectState("busy", "failed")
	e.Expect(e.expectReported("busy", reasonFailed).Message).To(ContainSubstring("while pods default/tenant used GPUs"))
	e.expectOperandsBack("busy")
	e.expectAllocatable("busy", map[string]int64{wholeGPU: 1})
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(tenant), tenant)).To(Succeed())
	e.Expect(tenant.Status.Phase).To(Equal(corev1.PodRunning))
	e.Expect(tenant.DeletionTimestamp).To(BeNil())

	// It is not tried again by itself. The remedy works.
	e.Expect(e.client.Delete(e.t.Context(), tenant)).To(Succeed())
	e.Eventually(func() error { return e.client.Get(e.t.Context(), client.ObjectKeyFromObject(tenant), tenant) }).
		ShouldNot(Succeed())
	e.layout("busy", disabled)
	e.expectState("busy", "success")
	e.layout("busy", sevenSmall)
	e.expectAllocatable("busy", map[string]int64{wholeGPU: 7})
	e.expectReady("busy")
}

func refusedLayout(e *env) {
	e.sim.Break("mig-manager", "refused", simulator.MIGFails)
	e.layout("refused", sevenSmall)
	e.expectReported("refused", reasonFailed)
	e.expectOperandsBack("refused")
	e.expectAllocatable("refused", map[string]int64{wholeGPU: 1})
}

func layoutAfterReboot(e *env) {
	e.layout("rebooted", sevenSmall)
	e.expectAllocatable("rebooted", map[string]int64{slice10: 7})
	e.expectReady("rebooted")
	e.Expect(e.sim.Reboot(e.t.Context(), "rebooted")).To(Succeed())
	e.Eventually(func() map[string]int64 { return e.allocatable("rebooted") }).Should(BeEmpty())
	e.expectAllocatable("rebooted", map[string]int64{slice10: 7})
	e.expectState("rebooted", "success")
	e.expectReady("rebooted")
}

func wholeAgain(e *env) {
	e.layout("whole-again", sevenSmall)
	e.expectAllocatable("whole-again", map[string]int64{slice10: 7})
	e.expectReady("whole-again")
	e.layout("whole-again", disabled)
	e.expectAllocatable("whole-again", map[string]int64{wholeGPU: 1})
	e.expectState("whole-again", "success")
	e.expectReady("whole-again")
}

func ownLayout(e *env) {
	e.layout("own-layout", "large-and-small")
	e.expectAllocatable("own-layout", map[string]int64{slice40: 1, slice20: 2})
	large := e.createPods(request{name: "large", resource: slice40, on: "own-layout"}, 2)
	e.expectOneWaits(large, insufficient(slice40))
	small := e.createPods(request{name: "small", resource: slice20, on: "own-layout"}, 2)
	e.expectRunning(small...)
	e.expectReady("own-layout")
}

// expectOverdue waits until a change is reported as one that takes too long, with the operands back.
func (e *env) expectOverdue(node string) {
	e.t.Helper()
	e.expectReported(node, reasonPending)
	e.expectOperandsBack(node)
	e.Expect(e.node(node).Labels).To(HaveKeyWithValue(migState, "pending"))
	e.expectAllocatable(node, map[string]int64{wholeGPU: 1})
}

func stuckChange(e *env) {
	e.sim.Break("mig-manager", "stuck", simulator.MIGStuck)
	e.layout("stuck", sevenSmall)
	e.expectPaused("stuck")
	e.expectOverdue("stuck")
}

func diedMidway(e *env) {
	e.sim.Break("mig-manager", "died", simulator.MIGStuck)
	e.layout("died", sevenSmall)
	e.expectPaused("died")
	e.sim.Break("mig-manager", "died", simulator.CrashLoop)
	e.expectOverdue("died")
	e.sim.Heal("mig-manager", "died")
	e.expectState("died", "success")
	e.expectAllocatable("died", map[string]int64{wholeGPU: 7})
	e.expectReady("died")
}

func labelRemoved(e *env) {
	e.sim.Break("mig-manager", "unlabelled", simulator.MIGStuck)
	e.layout("unlabelled", sevenSmall)
	e.expectPaused("unlabelled")
	e.layout("unlabelled", "")
	e.expectOperandsBack("unlabelled")
	e.expectAllocatable("unlabelled", map[string]int64{wholeGPU: 1})
	e.sim.Heal("mig-manager", "unlabelled")
	// The default layout is requested again, so that the change is undone once it has ended.
	e.Eventually(func() map[string]string { return e.node("unlabelled").Labels }).
		Should(And(HaveKeyWithValue(migLabel, disabled), HaveKeyWithValue(migState, "success")))
	e.expectAllocatable("unlabelled", map[string]int64{wholeGPU: 1})
	e.expectReady("unlabelled")
}

func managerRemoved(e *env) {
	e.sim.Break("mig-manager", "managerless", simulator.MIGStuck)
	e.layout("managerless", sevenSmall)
	e.expectPaused("managerless")
	e.label("managerless", deployPrefix+"mig-manager", "false")
	e.expectOverdue("managerless")
	e.expectReady("managerless")
}

func rebootMidway(e *env) {
	e.sim.Break("mig-manager", "reboots-midway", simulator.MIGStuck)
	e.layout("reboots-midway", sevenSmall)
	e.expectPaused("reboots-midway")
	e.Expect(e.sim.Reboot(e.t.Context(), "reboots-midway")).To(Succeed())
	e.sim.Heal("mig-manager", "reboots-midway")
	e.expectState("reboots-midway", "success")
	e.expectAllocatable("reboots-midway", map[string]int64{wholeGPU: 7})
	e.expectReady("reboots-midway")
}

// endings are all ways in which a change of a MIG layout ends. Each ends in a reported state, with all operands back,
// and ends no pod of a user.
var endings = []claim{
	{"a layout that nobody knows", unknownLayout},
	{"a pod uses a GPU", busyGPU},
	{"the driver refuses it", refusedLayout},
	{"the driver refuses it, and the MIG manager leaves the operands paused", leftPaused},
	{"it does not end", stuckChange},
	{"the MIG manager dies in the middle", diedMidway},
	{"the label is removed in the middle", labelRemoved},
	{"another layout is requested in the middle", labelChanged},
	{"the MIG manager is taken off the node in the middle", managerRemoved},
	{"the node is rebooted in the middle", rebootMidway},
	{"the MIG manager reboots the node", rebootForIt},
}

// TestMIGChangesEnd goes through the endings.
func TestMIGChangesEnd(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	var machines []simulator.NodeSpec
	for _, name := range []string{
		"unknown-layout", "busy", "refused", "paused", "stuck", "died", "unlabelled", "relabelled", "managerless",
		"reboots-midway", "reboots",
	} {
		machines = append(machines, h100(name, 1))
	}
	e := newEnv(t, machines)
	e.createPolicy(func(spec *v1.ClusterPolicySpec) { spec.Deadlines = &v1.DeadlinesSpec{DevicePlugin: "15s"} })
	e.awaitReady(len(machines))
	var held atomic.Int32
	e.hold("endings", endings, &held)
	t.Logf("MIG changes that end as they should: %d/%d", held.Load(), len(endings))
}

func leftPaused(e *env) {
	e.sim.Break("mig-manager", "paused", simulator.MIGLeavesPaused)
	e.layout("paused", sevenSmall)
	e.expectReported("paused", reasonFailed)
	e.expectOperandsBack("paused")
	e.expectAllocatable("paused", map[string]int64{wholeGPU: 1})
}

func labelChanged(e *env) {
	e.sim.Break("mig-manager", "relabelled", simulator.MIGStuck)
	e.layout("relabelled", sevenSmall)
	e.expectPaused("relabelled")
	e.layout("relabelled", twoLarge)
	e.sim.Heal("mig-manager", "relabelled")
	e.expectAllocatable("relabelled", map[string]int64{wholeGPU: 2})
	e.expectState("relabelled", "success")
	e.expectReady("relabelled")
}

func rebootForIt(e *env) {
	e.sim.Break("mig-manager", "reboots", simulator.MIGReboots)
	before := e.node("reboots").Status.NodeInfo.BootID
	e.layout("reboots", sevenSmall)
	e.expectAllocatable("reboots", map[string]int64{wholeGPU: 7})
	e.Expect(e.node("reboots").Status.NodeInfo.BootID).NotTo(Equal(before))
	e.expectState("reboots", "success")
	e.expectReady("reboots")
}
