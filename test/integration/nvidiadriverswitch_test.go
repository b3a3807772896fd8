package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// twoSystems starts a cluster with a node of each operating system.
func twoSystems(t *testing.T) *env {
	t.Helper()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	for _, spec := range []simulator.NodeSpec{
		{Name: "ubuntu"}, {Name: "rocky", OS: "rocky", OSVersion: "9.6", Kernel: "5.14.0-570.el9.x86_64"},
	} {
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	return e
}

// driverDefinition is the definition of NVIDIADriver in the cluster.
func driverDefinition() *unstructured.Unstructured {
	object := definition()
	object.SetName(crd.NVIDIADriverName)
	return object
}

// awaitOperand waits for the state and reason of an operand.
func (e *env) awaitOperand(name string, state v1.OperandState, reason, message string) {
	e.t.Helper()
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).WithTimeout(readyTime).
		Should(ContainElement(And(HaveField("Name", name), HaveField("State", state), HaveField("Reason", reason),
			HaveField("Message", ContainSubstring(message)))))
}

// TestNVIDIADriversHaveTheirOwnUpgradePolicies: a new version in two objects replaces the driver of one, whose upgrades
// are automatic, and waits for a person in the other one.
func TestNVIDIADriversHaveTheirOwnUpgradePolicies(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := twoSystems(t)
	e.run()
	policy := e.samplePolicy()
	policy.Spec.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
	e.create(policy)
	byHand := nvidiaDriver("by-hand", "rocky")
	byHand.Spec.UpgradePolicy = &v1.DriverUpgradePolicySpec{AutoUpgrade: new(false)}
	automatic := nvidiaDriver("automatic", "ubuntu")
	e.create(byHand)
	e.create(automatic)
	e.awaitReady(2)
	before := e.podsOf("driver")

	for _, object := range []*v1alpha1.NVIDIADriver{byHand, automatic} {
		e.Expect(e.edit(object, func() { object.Spec.Version = "590.44.01" })).To(Succeed())
	}
	e.Eventually(func() map[string]types.UID { return e.podsOf("driver") }).WithTimeout(readyTime).
		Should(And(HaveLen(2), Not(HaveKeyWithValue("driver on ubuntu", before["driver on ubuntu"]))))
	e.awaitDriver("automatic", v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
	e.awaitDriver("by-hand", v1alpha1.StateNotReady, v1.ReasonUpgradePending, ContainSubstring("rocky"))
	e.settled()
	e.quietFor("with a pending upgrade", 3*time.Second)
	e.Expect(e.podsOf("driver")).To(HaveKeyWithValue("driver on rocky", before["driver on rocky"]))

	e.Expect(e.edit(byHand, func() { byHand.Spec.UpgradePolicy.AutoUpgrade = new(true) })).To(Succeed())
	e.awaitDriver("by-hand", v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
	e.awaitReady(2)
	e.Expect(e.podsOf("driver")).NotTo(HaveKeyWithValue("driver on rocky", before["driver on rocky"]))
}

// TestTheDefinitionOfNVIDIADriverComesAndGoes: while the cluster has no definition of NVIDIADriver, or one that drops
// fields, the drivers stay as they are and the policy says why. Once it is right, the objects are used.
func TestTheDefinitionOfNVIDIADriverComesAndGoes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := twoSystems(t)
	e.Expect(e.client.Delete(t.Context(), driverDefinition())).To(Succeed())
	e.Eventually(func() bool {
		live := driverDefinition()
		return apierrors.IsNotFound(e.client.Get(t.Context(), client.ObjectKeyFromObject(live), live))
	}).Should(BeTrue())
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	before := e.podsOf("driver")

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = new(true) })
	e.awaitOperand("driver", v1.OperandInvalid, v1.ReasonInvalidSpec, "the cluster has no CRD nvidiadrivers.nvidia.com")
	e.Expect(e.podsOf("driver")).To(Equal(before), "without a definition")

	e.renewDrivers()
	e.Eventually(func() error { return e.client.Create(t.Context(), nvidiaDriver("on-ubuntu", "ubuntu")) }).
		Should(Succeed())
	e.create(nvidiaDriver("on-rocky", "rocky"))
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
	e.awaitReady(2)

	e.Expect(e.client.Patch(t.Context(), driverDefinition(), client.RawPatch(types.JSONPatchType, []byte(
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/secretEnv"}]`)))).
		To(Succeed())
	e.awaitOperand("driver", v1.OperandInvalid, v1.ReasonInvalidSpec, "does not have spec.secretEnv")
	e.Eventually(func() any { return e.policy().Status.Conditions }).Should(ContainElement(And(
		HaveField("Type", v1.ConditionCRDOutdated),
		HaveField("Message", ContainSubstring("drops spec.secretEnv from NVIDIADrivers")))))
	e.renewDrivers()
	e.awaitReady(2)
	e.Eventually(func() any { return e.policy().Status.Conditions }).
		ShouldNot(ContainElement(HaveField("Type", v1.ConditionCRDOutdated)))
	e.Expect(e.podsOf("driver")).To(Equal(before), "after all of it")
}

// renewDrivers installs the operator's own definition of NVIDIADriver.
func (e *env) renewDrivers() {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), driverDefinition(), client.RawPatch(types.ApplyPatchType, crd.NVIDIADriver),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
}

// TestKilledWhileDriversMoveToNVIDIADrivers: the operator is killed after each step of a switch from spec.driver to
// objects and back. It goes on where it was: no pod is replaced by an object with the same driver, and each once by one
// with another driver.
func TestKilledWhileDriversMoveToNVIDIADrivers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := twoSystems(t)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.create(nvidiaDriver("on-ubuntu", "ubuntu"))
	other := nvidiaDriver("on-rocky", "rocky")
	other.Spec.Version = "590.44.01"
	e.create(other)
	before := e.podsOf("driver")

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = new(true) })
	for _, begun := range []gomegatypes.GomegaMatcher{
		HaveField("Labels", HaveKeyWithValue(labels.DriverOwner, "on-rocky")),
		HaveField("Annotations", HaveKey(labels.UpgradeRecord)),
		HaveField("Labels", HaveKeyWithValue(labels.Pool, HaveSuffix("-on-rocky"))),
	} {
		e.Eventually(func() *corev1.Node { return e.node("rocky") }).WithTimeout(readyTime).
			WithPolling(20 * time.Millisecond).Should(begun)
		e.process.Kill()
		e.run()
	}
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
	e.awaitReady(2)
	e.Expect(e.podsOf("driver")).To(HaveKeyWithValue("driver on ubuntu", before["driver on ubuntu"]), "an equal driver")
	e.Expect(e.podOn(driverApp, "rocky").Spec.Containers[0].Image).To(ContainSubstring("590.44.01"))

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = nil })
	e.Eventually(func() map[string]string { return e.node("ubuntu").Labels }).WithTimeout(readyTime).
		WithPolling(20 * time.Millisecond).ShouldNot(HaveKey(labels.DriverOwner))
	e.process.Kill()
	e.run()
	e.awaitDriver("on-rocky", v1alpha1.StateDisabled, v1.ReasonReconciled, HavePrefix("no ClusterPolicy uses"))
	e.Expect(e.podsOf("driver")).To(HaveKeyWithValue("driver on ubuntu", before["driver on ubuntu"]), "back again")
}
