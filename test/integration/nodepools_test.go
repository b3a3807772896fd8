package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	teamLabel = "example.com/team"
	// commonDriver and teamDriver are the driver pools of nodes in no node pool and of team a.
	commonDriver, teamDriver = "ubuntu24.04-amd64", "ubuntu24.04-amd64-team-a"
)

// teamA returns a pool that overrides everything that a pool can.
func teamA() v1.NodePoolSpec {
	return v1.NodePoolSpec{
		Name: "team-a", NodeSelector: v1.NodePoolSelector{teamLabel: "a"},
		Driver:  &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
		Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.19.0"}},
		MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
	}
}

// TestNodePools: a pool is added, gets a joining node, and is removed. Other objects are not written meanwhile, no
// pod of another node is replaced, and a running driver stays until an administrator moves it.
func TestNodePools(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	for _, spec := range []simulator.NodeSpec{
		{Name: "plain"}, {Name: "member", Labels: map[string]string{teamLabel: "a"}},
	} {
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	whole, before := e.written(), e.podsOn("plain")
	members, driver := e.podsOn("member"), e.podOn("nvidia-driver-daemonset", "member").UID

	t.Run("a pool is added", func(t *testing.T) { e.in(t).poolComes(whole, driver) })
	t.Run("its driver is moved manually", func(t *testing.T) { e.in(t).driverMoves(teamDriver, "590.44.01") })
	e.Expect(e.podsOn("member")).To(HaveLen(len(members)), "as many operands as before")
	t.Run("a node joins", func(t *testing.T) { e.in(t).memberJoins() })
	t.Run("a pool that can select no node", func(t *testing.T) { e.in(t).poolContradicts() })
	e.Expect(e.podsOn("plain")).To(Equal(before), "the pods of a node in no pool")
	t.Run("the pool is removed", func(t *testing.T) { e.in(t).poolGoes(whole) })
	e.Expect(e.podsOn("plain")).To(Equal(before), "the pods of a node in no pool")
	e.settled()
	e.quietFor("after the pool", 5*time.Second)
}

// podsOn returns the UIDs of the operands' pods on a node, by operand.
func (e *env) podsOn(node string) map[string]types.UID {
	e.t.Helper()
	found := map[string]types.UID{}
	for key, uid := range e.pods() {
		if strings.HasSuffix(key, " on "+node) {
			found[key] = uid
		}
	}
	return found
}

// ofNoPool returns the objects without those of the pool.
func (e *env) ofNoPool() map[string]writtenObject {
	rest := map[string]writtenObject{}
	for name, object := range e.written() {
		if !strings.HasSuffix(name, "team-a") {
			rest[name] = object
		}
	}
	return rest
}

func (e *env) poolComes(whole map[string]writtenObject, driver types.UID) {
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = []v1.NodePoolSpec{teamA()} })
	e.awaitNodes(map[string]string{"plain": "", "member": v1.ReasonUpgradePending}, 30*time.Second)
	e.Expect(e.messages()["member"]).
		To(HavePrefix("driver is outdated: kubectl annotate node member " + labels.UpgradeRequested + "=true; "))
	e.Expect(e.condition("member")).To(HaveSuffix("; it moves from " + commonDriver + " to " + teamDriver))
	e.Expect(e.podOn("nvidia-driver-daemonset", "member").UID).To(Equal(driver))
	for app, image := range map[string]string{
		"nvidia-container-toolkit-daemonset": ":v1.19.0", "nvidia-device-plugin-daemonset": "", "gpu-feature-discovery": "",
		"nvidia-operator-validator": "",
	} {
		// A pod that is being replaced is only reported after some seconds.
		e.Eventually(func() *corev1.Pod { return e.podOn(app, "member") }).Should(And(Not(BeNil()),
			HaveField("Labels", HaveKeyWithValue(labels.NodePool, "team-a")),
			HaveField("Spec.Containers", ContainElement(HaveField("Image", HaveSuffix(image))))), "pod of %s", app)
	}
	e.Expect(e.ofNoPool()).To(Equal(whole), "only objects of the pool were written")
	e.Expect(e.policy().Status.NodePools).To(ConsistOf(And(
		HaveField("Name", "team-a"), HaveField("Nodes", int32(1)), HaveField("Ready", int32(1)), HaveField("Reason",
			v1.ReasonUpgradePending))))
}

// driverMoves takes the node out of its driver pool.
func (e *env) driverMoves(pool, version string) {
	e.moveDriver("member")
	e.Eventually(func() map[string]string { return e.node("member").Labels }).Should(HaveKeyWithValue(labels.Pool, pool))
	e.awaitReady(2)
	pod := e.podOn("nvidia-driver-daemonset", "member")
	e.Expect(pod).NotTo(BeNil())
	e.Expect(pod.Labels).To(HaveKeyWithValue(labels.Pool, pool))
	e.Expect(pod.Spec.Containers[0].Image).To(ContainSubstring(version))
}

func (e *env) memberJoins() {
	common := e.ofNoPool()
	_, err := e.sim.AddNode(e.t.Context(), simulator.NodeSpec{Name: "second", Labels: map[string]string{teamLabel: "a"}})
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(3)
	e.Expect(e.node("second").Labels).To(And(HaveKeyWithValue(labels.Pool, teamDriver),
		HaveKeyWithValue(labels.NodePool, "team-a")))
	e.Expect(e.ofNoPool()).To(Equal(common))
	e.Eventually(func() []v1.NodePoolStatus { return e.policy().Status.NodePools }).Should(Equal([]v1.NodePoolStatus{
		{Name: "team-a", Nodes: 2, Ready: 2, DriverVersion: "590.44.01"},
	}))
	e.Expect(e.client.Delete(e.t.Context(), e.node("second"))).To(Succeed())
	e.awaitReady(2)
}

// poolContradicts: a pool that no node can belong to is reported with both names, and changes nothing.
func (e *env) poolContradicts() {
	before := e.written()
	narrow := v1.NodePoolSpec{
		Name: "narrow", NodeSelector: v1.NodePoolSelector{teamLabel: "a", "zone": "1"},
		MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyNone},
	}
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = append(spec.NodePools, narrow) })
	e.Eventually(func() v1.ClusterPolicyStatus { return e.policy().Status }).Should(And(
		HaveField("State", v1.StateNotReady),
		HaveField("Conditions", ContainElement(And(HaveField("Type", v1.ConditionDegraded),
			HaveField("Reason", v1.ReasonInvalidSpec), HaveField("Message",
				"spec.nodePools: every node that narrow selects belongs to team-a, which comes first: list narrow first, or "+
					"change one nodeSelector")))),
		HaveField("NodeSummary.Ready", int32(2))))
	e.Expect(e.written()).To(Equal(before))
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = spec.NodePools[:1] })
	e.awaitReady(2)
}

func (e *env) poolGoes(whole map[string]writtenObject) {
	driver := e.podOn("nvidia-driver-daemonset", "member").UID
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = nil })
	e.awaitNodes(map[string]string{"plain": "", "member": v1.ReasonUpgradePending}, 30*time.Second)
	e.Expect(e.podOn("nvidia-driver-daemonset", "member").UID).To(Equal(driver))
	// A toolkit that has validated the driver before, and starts after it is replaced, would wait for it: a known limit.
	e.Eventually(func() *corev1.Pod { return e.podOn("nvidia-container-toolkit-daemonset", "member") }).Should(And(
		Not(BeNil()), HaveField("Labels", Not(HaveKey(labels.NodePool))),
		HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))))
	e.driverMoves(commonDriver, "")
	e.Eventually(e.written).Should(Equal(whole), "all objects of the pool are removed, and no other was written")
	for key := range e.node("member").Labels {
		e.Expect(key).NotTo(HavePrefix(labels.NodePool))
		e.Expect(key).NotTo(Equal(labels.PoolNodePool))
	}
}
