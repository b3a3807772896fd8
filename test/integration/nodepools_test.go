package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	teamLabel = "example.com/team"
	// commonDriver and teamDriver are the driver pools of nodes of no pool and of team a.
	commonDriver, teamDriver = "ubuntu24.04-amd64", "ubuntu24.04-amd64-team-a"
)

// teamA is a pool that says something else of all that a pool can.
func teamA() v1.NodePoolSpec {
	return v1.NodePoolSpec{
		Name: "team-a", NodeSelector: v1.NodePoolSelector{teamLabel: "a"},
		Driver:  &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
		Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.19.0"}},
		MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
	}
}

// TestNodePools: a pool comes, gets a node that joins, and goes. What is not the pool's is not written meanwhile, no pod
// of another node is replaced, and a driver that runs stays until somebody moves it.
func TestNodePools(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	for _, spec := range []simulator.NodeSpec{{Name: "plain"}, {Name: "member", Labels: map[string]string{teamLabel: "a"}}} {
		_, err := b.sim.AddNode(t.Context(), spec)
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	whole, before := b.written(), b.podsOn("plain")
	members, driver := b.podsOn("member"), b.podOn("nvidia-driver-daemonset", "member").UID

	t.Run("a pool comes", func(t *testing.T) { b.in(t).poolComes(whole, driver) })
	t.Run("its driver is moved by hand", func(t *testing.T) { b.in(t).driverMoves(teamDriver, "590.44.01") })
	b.Expect(b.podsOn("member")).To(HaveLen(len(members)), "as many operands as before")
	t.Run("a node joins", func(t *testing.T) { b.in(t).memberJoins() })
	t.Run("a pool that contradicts", func(t *testing.T) { b.in(t).poolContradicts() })
	b.Expect(b.podsOn("plain")).To(Equal(before), "the pods of a node of no pool")
	t.Run("the pool goes", func(t *testing.T) { b.in(t).poolGoes(whole) })
	b.Expect(b.podsOn("plain")).To(Equal(before), "the pods of a node of no pool")
	b.settled()
	b.quietFor("after the pool", 5*time.Second)
}

// podsOn are the UIDs of the operands' pods on a node, by operand.
func (b *bed) podsOn(node string) map[string]types.UID {
	b.t.Helper()
	found := map[string]types.UID{}
	for key, uid := range b.pods() {
		if strings.HasSuffix(key, " on "+node) {
			found[key] = uid
		}
	}
	return found
}

// ofNoPool are the objects without those of the pool.
func (b *bed) ofNoPool() map[string]writtenObject {
	rest := map[string]writtenObject{}
	for name, object := range b.written() {
		if !strings.HasSuffix(name, "team-a") {
			rest[name] = object
		}
	}
	return rest
}

func (b *bed) poolComes(whole map[string]writtenObject, driver types.UID) {
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = []v1.NodePoolSpec{teamA()} })
	b.awaitNodes(map[string]string{"plain": "", "member": v1.ReasonUpgradePending}, 30*time.Second)
	b.Expect(b.messages()["member"]).To(HavePrefix("run kubectl label node member " + labels.Pool + "- " + labels.DriverAnchor + "- "))
	b.Expect(b.condition("member")).To(HaveSuffix("to move the driver from " + commonDriver + " to " + teamDriver))
	b.Expect(b.podOn("nvidia-driver-daemonset", "member").UID).To(Equal(driver))
	for app, image := range map[string]string{
		"nvidia-container-toolkit-daemonset": ":v1.19.0", "nvidia-device-plugin-daemonset": "", "gpu-feature-discovery": "", "nvidia-operator-validator": "",
	} {
		// A pod that is merely being replaced is not reported for some seconds.
		b.Eventually(func() *corev1.Pod { return b.podOn(app, "member") }).Should(And(Not(BeNil()),
			HaveField("Labels", HaveKeyWithValue(labels.NodePool, "team-a")),
			HaveField("Spec.Containers", ContainElement(HaveField("Image", HaveSuffix(image))))), "pod of %s", app)
	}
	b.Expect(b.ofNoPool()).To(Equal(whole), "nothing but the pool's own was written")
	b.Expect(b.policy().Status.NodePools).To(ConsistOf(And(
		HaveField("Name", "team-a"), HaveField("Nodes", int32(1)), HaveField("Ready", int32(1)), HaveField("Reason", v1.ReasonUpgradePending))))
}

// driverMoves does what the node's message says.
func (b *bed) driverMoves(pool, version string) {
	b.moveDriver("member")
	b.Eventually(func() map[string]string { return b.node("member").Labels }).Should(HaveKeyWithValue(labels.Pool, pool))
	b.awaitReady(2)
	pod := b.podOn("nvidia-driver-daemonset", "member")
	b.Expect(pod).NotTo(BeNil())
	b.Expect(pod.Labels).To(HaveKeyWithValue(labels.Pool, pool))
	b.Expect(pod.Spec.Containers[0].Image).To(ContainSubstring(version))
}

func (b *bed) memberJoins() {
	common := b.ofNoPool()
	_, err := b.sim.AddNode(b.t.Context(), simulator.NodeSpec{Name: "second", Labels: map[string]string{teamLabel: "a"}})
	b.Expect(err).NotTo(HaveOccurred())
	b.awaitReady(3)
	b.Expect(b.node("second").Labels).To(And(HaveKeyWithValue(labels.Pool, teamDriver), HaveKeyWithValue(labels.NodePool, "team-a")))
	b.Expect(b.ofNoPool()).To(Equal(common))
	b.Eventually(func() []v1.NodePoolStatus { return b.policy().Status.NodePools }).Should(Equal([]v1.NodePoolStatus{
		{Name: "team-a", Nodes: 2, Ready: 2, DriverVersion: "590.44.01"},
	}))
	b.Expect(b.client.Delete(b.t.Context(), b.node("second"))).To(Succeed())
	b.awaitReady(2)
}

// poolContradicts: a pool that no node can belong to is told with both names, and changes nothing.
func (b *bed) poolContradicts() {
	before := b.written()
	narrow := v1.NodePoolSpec{Name: "narrow", NodeSelector: v1.NodePoolSelector{teamLabel: "a", "zone": "1"}, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyNone}}
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = append(spec.NodePools, narrow) })
	b.Eventually(func() v1.ClusterPolicyStatus { return b.policy().Status }).Should(And(
		HaveField("State", v1.StateNotReady),
		HaveField("Conditions", ContainElement(And(HaveField("Type", v1.ConditionDegraded), HaveField("Reason", v1.ReasonInvalidSpec), HaveField("Message",
			"spec.nodePools: every node that narrow selects belongs to team-a, which comes first: list narrow first, or change one nodeSelector")))),
		HaveField("NodeSummary.Ready", int32(2))))
	b.Expect(b.written()).To(Equal(before))
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = spec.NodePools[:1] })
	b.awaitReady(2)
}

func (b *bed) poolGoes(whole map[string]writtenObject) {
	driver := b.podOn("nvidia-driver-daemonset", "member").UID
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = nil })
	b.awaitNodes(map[string]string{"plain": "", "member": v1.ReasonUpgradePending}, 30*time.Second)
	b.Expect(b.podOn("nvidia-driver-daemonset", "member").UID).To(Equal(driver))
	b.driverMoves(commonDriver, "")
	b.Eventually(b.written).Should(Equal(whole), "all of the pool is gone, and nothing else was written")
	for key := range b.node("member").Labels {
		b.Expect(key).NotTo(HavePrefix(labels.NodePool))
		b.Expect(key).NotTo(Equal(labels.PoolNodePool))
	}
}
