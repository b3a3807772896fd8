package guides

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	reasonDraining = "MIGConfigDraining"
	drainRecord    = "nvidia.com/gpu-operator.mig-drain"
)

// TestDrainedLayouts: with onBusy: drain, the pods that use the GPUs of a node are evicted before its MIG layout is
// changed, within disruption budgets. The operator uncordons what it has cordoned, whatever ends the drain, and nothing
// that a user has cordoned.
func TestDrainedLayouts(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	nodes := []string{"plain", "admin", "protected", "refused"}
	e := newEnv(t, []simulator.NodeSpec{h100(nodes[0], 1), h100(nodes[1], 1), h100(nodes[2], 1), h100(nodes[3], 1)})
	e.createPolicy(func(spec *v1.ClusterPolicySpec) {
		spec.MIG = &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}
		spec.MIGManager.Config.OnBusy = v1.MIGBusyDrain
		spec.Driver.UpgradePolicy = &v1.DriverUpgradePolicySpec{
			MaxParallelUpgrades: new(int32(0)), MaxUnavailable: new(intstr.FromString("100%")),
		}
	})
	e.awaitReady(len(nodes))
	for _, node := range nodes {
		e.deployOn(node)
	}
	e.protect("protected")
	e.cordon("admin", true)
	e.sim.Break("mig-manager", "refused", simulator.MIGFails)

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.MIGManager.Config.Default = new(twoLarge) })
	blocked := And(ContainSubstring("PDB default/protected allows 0 disruptions: pod default/protected-"),
		ContainSubstring("drained for MIG layout "+twoLarge))
	e.expectDrained("protected", blocked)
	e.expectAllocatable("plain", map[string]int64{slice40: 2})
	e.expectUncordoned("plain")
	e.expectAllocatable("admin", map[string]int64{slice40: 2})
	e.Eventually(func() map[string]string { return e.node("admin").Annotations }).ShouldNot(HaveKey(drainRecord))
	e.Expect(e.node("admin").Spec.Unschedulable).To(BeTrue(), "the cordon of a user")
	e.Expect(e.expectReported("refused", reasonFailed).Message).To(ContainSubstring(twoLarge))
	e.expectUncordoned("refused")

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.MIGManager.Config.OnBusy = v1.MIGBusyHold })
	e.expectUncordoned("protected")
	e.expectHeld("protected", "MIG layout all-3g.40gb waits for pods default/protected-")
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.MIGManager.Config.OnBusy = v1.MIGBusyDrain })
	e.expectDrained("protected", blocked)
	e.restartOperator()
	e.Expect(e.node("protected").Spec.Unschedulable).To(BeTrue())
	e.Expect(e.client.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: objectOf("protected")})).To(Succeed())
	e.expectAllocatable("protected", map[string]int64{slice40: 2})
	e.expectUncordoned("protected")

	// The policy is deleted in the middle of a drain.
	e.deployOnSlices("plain")
	e.protect("plain-slices")
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.MIGManager.Config.Default = new(disabled) })
	e.expectDrained("plain", ContainSubstring("PDB default/plain-slices allows 0 disruptions"))
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.expectUncordoned("plain")
	e.Expect(e.node("admin").Spec.Unschedulable).To(BeTrue(), "the cordon of a user")
}

// objectOf is the metadata of an object of the user.
func objectOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// deployOn creates a Deployment whose pod has the GPU of the node, and waits until it runs.
func (e *env) deployOn(node string) { e.deploy(request{name: node, resource: wholeGPU, on: node}) }

// deployOnSlices creates one whose pod has a MIG device of the node.
func (e *env) deployOnSlices(node string) {
	e.deploy(request{name: node + "-slices", resource: slice40, on: node})
}

func (e *env) deploy(r request) {
	e.t.Helper()
	app := map[string]string{"app": r.name}
	e.create(&appsv1.Deployment{
		ObjectMeta: objectOf(r.name),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: r.pod().Spec},
		},
	})
	e.Eventually(func() int32 {
		found := &appsv1.Deployment{ObjectMeta: objectOf(r.name)}
		e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(found), found)).To(Succeed())
		return found.Status.ReadyReplicas
	}).WithTimeout(readyTime).Should(Equal(int32(1)), e.describe(r.on))
}

// protect creates a PodDisruptionBudget that allows no eviction of the Deployment's pod, and waits until it is counted.
func (e *env) protect(deployment string) {
	e.t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: objectOf(deployment),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": deployment}},
		},
	}
	e.create(budget)
	e.Eventually(func() int32 {
		e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		return budget.Status.CurrentHealthy
	}).Should(Equal(int32(1)))
}

func (e *env) cordon(node string, cordoned bool) {
	e.t.Helper()
	object := e.node(node)
	e.edit(object, func() { object.Spec.Unschedulable = cordoned })
}

// expectDrained waits until the operator has cordoned the node, and reports what blocks the evictions.
func (e *env) expectDrained(node string, message OmegaMatcher) {
	e.t.Helper()
	e.Eventually(func() corev1.NodeCondition { return e.condition(node) }).WithTimeout(readyTime).Should(And(
		HaveField("Reason", reasonDraining), HaveField("Message", message)), e.describe(node))
	e.Expect(e.node(node).Spec.Unschedulable).To(BeTrue())
}

// expectUncordoned waits until the node is uncordoned, and nothing is left of a drain.
func (e *env) expectUncordoned(node string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		object := e.node(node)
		g.Expect(object.Spec.Unschedulable).To(BeFalse())
		g.Expect(object.Annotations).NotTo(HaveKey(drainRecord))
	}).WithTimeout(readyTime).Should(Succeed(), e.describe(node))
}

// restartOperator kills the operator, and starts another one.
func (e *env) restartOperator() {
	e.t.Helper()
	e.operator.Kill()
	<-e.operator.Done()
	var err error
	e.operator, err = cluster.StartOperator(e.t.Context(), e.options)
	e.Expect(err).NotTo(HaveOccurred())
}
