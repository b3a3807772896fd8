package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const osLabel = "feature.node.kubernetes.io/system-os_release.ID"

// nvidiaDriver returns an object for the nodes of an operating system, whose driver equals that of the sample policy.
func nvidiaDriver(name, system string) *v1alpha1.NVIDIADriver {
	return &v1alpha1.NVIDIADriver{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NVIDIADriverSpec{NodeSelector: v1.NodePoolSelector{osLabel: v1.LabelValue(system)}},
	}
}

// TestNVIDIADrivers: drivers move from spec.driver to NVIDIADriver objects and back, on two operating systems. No pod
// of a driver is replaced meanwhile, not by a conflict or a deleted object either.
func TestNVIDIADrivers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := twoSystems(t)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	before, daemonSets := e.podsOf("driver"), e.written()
	e.Expect(before).To(HaveLen(2))

	t.Run("no object", func(t *testing.T) { e.in(t).noDriverIsDeclared() })
	e.Expect(e.podsOf("driver")).To(Equal(before), "driver pods without an object")

	e.create(nvidiaDriver("on-ubuntu", "ubuntu"))
	e.create(nvidiaDriver("on-rocky", "rocky"))
	e.awaitDriver("on-ubuntu", v1alpha1.StateDisabled, v1.ReasonReconciled, HavePrefix("no ClusterPolicy uses"))
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = new(true) })
	for _, name := range []string{"ubuntu", "rocky"} {
		e.awaitDriver("on-"+name, v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
		e.Expect(e.node(name).Labels).To(HaveKeyWithValue(labels.DriverOwner, "on-"+name))
	}
	e.awaitReady(2)
	e.Expect(e.podsOf("driver")).To(Equal(before), "driver pods after the switch to equal objects")
	e.settled()
	e.quietFor("with objects", 5*time.Second)

	t.Run("conflict", func(t *testing.T) { e.in(t).driversConflict() })
	e.Expect(e.podsOf("driver")).To(Equal(before), "driver pods after a conflict")
	t.Run("deleted", func(t *testing.T) { e.in(t).driverIsDeleted() })
	e.Expect(e.podsOf("driver")).To(Equal(before), "driver pods after an object was deleted")
	t.Run("upgrade", func(t *testing.T) { e.in(t).driverIsUpgraded() })

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = nil })
	e.awaitDriver("on-rocky", v1alpha1.StateDisabled, v1.ReasonReconciled, HavePrefix("no ClusterPolicy uses"))
	e.awaitReady(2)
	e.Expect(e.podsOf("driver")).To(HaveKeyWithValue("driver on rocky", before["driver on rocky"]))
	e.Expect(e.written()).To(HaveLen(len(daemonSets)))
	e.Expect(e.node("rocky").Labels).NotTo(HaveKey(labels.DriverOwner))
	e.settled()
	e.quietFor("after objects", 5*time.Second)
}

// awaitDriver waits for the state of an object, and for its conditions, with this reason and message.
func (e *env) awaitDriver(name string, state v1alpha1.DriverState, reason string, message gomegatypes.GomegaMatcher) {
	e.t.Helper()
	ready, failed := metav1.ConditionFalse, metav1.ConditionTrue
	if state == v1alpha1.StateReady {
		ready, failed = metav1.ConditionTrue, metav1.ConditionFalse
	}
	condition := func(name string, value metav1.ConditionStatus) gomegatypes.GomegaMatcher {
		return And(HaveField("Type", name), HaveField("Status", value), HaveField("Reason", reason),
			HaveField("Message", message))
	}
	conditions := []any{condition("Ready", ready), condition("Error", failed)}
	if reason == v1.ReasonConflictingNodeSelector {
		conditions = append(conditions, condition("Stalled", metav1.ConditionTrue))
	}
	e.Eventually(func() (v1alpha1.NVIDIADriverStatus, error) {
		object := &v1alpha1.NVIDIADriver{}
		err := e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, object)
		return object.Status, err
	}).WithTimeout(readyTime).WithPolling(100 * time.Millisecond).Should(And(HaveField("State", state),
		HaveField("Namespace", namespace),
		HaveField("Conditions", ConsistOf(conditions...))))
}

// driversConflict: two objects select a node. Both name each other, and the driver of the node stays.
func (e *env) driversConflict() {
	const message = "NVIDIADrivers also-rocky and on-rocky select node rocky: change one nodeSelector"
	other := nvidiaDriver("also-rocky", "rocky")
	e.create(other)
	for _, name := range []string{"also-rocky", "on-rocky"} {
		e.awaitDriver(name, v1alpha1.StateNotReady, v1.ReasonConflictingNodeSelector, Equal(message))
	}
	e.awaitDriver("on-ubuntu", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.Eventually(func() string { return e.messages()["rocky"] }).WithTimeout(readyTime).
		Should(ContainSubstring("NVIDIADrivers also-rocky and on-rocky select the node"))
	e.Expect(e.client.Delete(e.t.Context(), other)).To(Succeed())
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.awaitReady(2)
}

// driverIsDeleted: the nodes of a deleted object keep its driver, and are reported.
func (e *env) driverIsDeleted() {
	e.Expect(e.client.Delete(e.t.Context(), nvidiaDriver("on-rocky", "rocky"))).To(Succeed())
	e.awaitNodes(map[string]string{"ubuntu": "", "rocky": v1.ReasonNoNVIDIADriver}, readyTime)
	e.create(nvidiaDriver("on-rocky", "rocky"))
	e.awaitReady(2)
}

// driverIsUpgraded: another version of one object replaces the driver of its nodes alone, as autoUpgrade is on by
// default.
func (e *env) driverIsUpgraded() {
	object := nvidiaDriver("on-ubuntu", "ubuntu")
	e.Expect(e.edit(object, func() { object.Spec.Version = "590.44.01" })).To(Succeed())
	e.Eventually(func() map[string]string { return e.node("ubuntu").Labels }).WithTimeout(readyTime).
		Should(HaveKeyWithValue(labels.Pool, commonDriver+"-on-ubuntu"))
	e.awaitDriver("on-ubuntu", v1alpha1.StateReady, v1.ReasonReconciled, Equal("the driver is ready on 1 of 1 nodes"))
	e.awaitReady(2)
	e.Expect(e.podOn("nvidia-driver-daemonset", "ubuntu").Spec.Containers[0].Image).To(ContainSubstring("590.44.01"))
	// Back to the driver of the policy.
	e.Expect(e.edit(object, func() { object.Spec.Version = "" })).To(Succeed())
	e.Eventually(func() map[string]string { return e.node("ubuntu").Labels }).WithTimeout(readyTime).
		Should(HaveKeyWithValue(labels.Pool, commonDriver))
	e.awaitReady(2)
}

// noDriverIsDeclared: without any object the pods of the drivers run on, and the policy says so.
func (e *env) noDriverIsDeclared() {
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = new(true) })
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).WithTimeout(readyTime).
		Should(ContainElement(And(HaveField("Name", "driver"), HaveField("State", v1.OperandWaiting),
			HaveField("Reason", v1.ReasonNoNVIDIADriver), HaveField("Desired", int32(2)), HaveField("Ready", int32(2)),
			HaveField("Message", HavePrefix("its pods stay as they are on 2 of 2 nodes: rocky (NoNVIDIADriver)")))))
	e.Eventually(func() []metav1.Condition { return e.policy().Status.Conditions }).WithTimeout(readyTime).
		Should(ContainElement(And(HaveField("Type", v1.ConditionReady), HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", v1.ReasonNoNVIDIADriver))))
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.UseNvidiaDriverCRD = nil })
	e.awaitReady(2)
}
