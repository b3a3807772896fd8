package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	healthAccount    = "nvidia-gpu-health"
	healthAnnotation = "nvidia.com/gpu-operator.gpu-health"
	faultyNode       = "gpu-00001"
)

// TestALostGPUIsNamed: the health agent of a node reports a GPU that has fallen off the bus. Condition, status and one
// Event each name it, and the node is not ready, although its kubelet counts all GPUs. Nothing is written while it
// lasts. A boot ends the fault. Without the agent, nothing of it is left.
func TestALostGPUIsNamed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	object := e.samplePolicy()
	object.Spec.Health = &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}}
	e.create(object)
	e.awaitReady(2)
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).Should(ContainElement(
		And(HaveField("Name", "health-agent"), HaveField("State", v1.OperandReady))))
	boot := e.node(faultyNode).Status.NodeInfo.BootID
	e.reportsHealth(boot, "")
	e.Eventually(e.healthOf).Should(Equal("True GPUsHealthy"))

	const lost = "GPU 0000:1b:00.0 lost since 2026-11-25T12:03:00Z, Xid 79"
	e.reportsHealth(boot,
		`{"pci":"0000:1b:00.0","class":"Reboot","reason":"GPULost","xid":79,"since":"2026-11-25T12:03:00Z"}`)
	e.nodeReports(faultyNode, v1.ReasonGPUsUnhealthy, "7 of 8 GPUs usable: "+lost)
	e.Eventually(e.healthOf).Should(Equal("False GPULost"))
	e.Expect(e.healthCondition().Message).To(Equal(faultyNode + ": " + lost))
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ContainElement(And(
		HaveField("Name", faultyNode), HaveField("Ready", false), HaveField("Reason", v1.ReasonGPUsUnhealthy),
		HaveField("GPUs", Equal(&v1.NodeGPUs{Total: 8, Usable: 7})), HaveField("Message", "7 of 8 GPUs usable: "+lost))))
	e.Expect(e.eventsAbout("Node", faultyNode)).To(ConsistOf(
		And(HaveField("Type", "Warning"), HaveField("Reason", "GPULost"), HaveField("Count", int32(1))),
		And(HaveField("Type", "Warning"), HaveField("Reason", v1.ReasonGPUsUnhealthy), HaveField("Count", int32(1)))))
	e.settled()
	e.quietSince("5 s with a lost GPU", e.mark(), 5*time.Second)

	e.reportsHealth(boot, "")
	e.Eventually(e.healthOf).Should(Equal("True GPUsHealthy"))
	e.awaitReady(2)
	e.Expect(e.eventsAbout("Node", faultyNode)).To(And(HaveLen(4), ContainElement(HaveField("Reason", "GPUsHealthy"))))

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Health = nil })
	e.Eventually(e.healthOf).Should(BeEmpty())
	e.Expect(e.node(faultyNode).Annotations).NotTo(HaveKey(healthAnnotation))
}

// TestWhatTheHealthAgentNotesIsAnEvent: errors of programs and reasons to watch a GPU leave it healthy, and are one
// Event for each report, however many they are.
func TestWhatTheHealthAgentNotesIsAnEvent(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	object := e.samplePolicy()
	object.Spec.Health = &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}}
	e.create(object)
	e.awaitReady(2)
	boot := e.node(faultyNode).Status.NodeInfo.BootID
	e.reportsHealth(boot, "")
	e.Eventually(e.healthOf).Should(Equal("True GPUsHealthy"))
	e.settled()
	begin := e.mark()
	since := time.Now().UTC().Format(time.RFC3339)
	note := func(class, reason string, xid int) string {
		return fmt.Sprintf(`{"pci":"0000:1b:00.0","class":%q,"reason":%q,"xid":%d,"since":%q}`, class, reason, xid, since)
	}
	remap := note("Watch", "GPUMemoryRemapPending", 0)
	e.reports(fmt.Sprintf(`{"boot":%q,"faults":[],"notes":[%s,%s]}`, boot, remap, note("App", "GPUApplicationError", 13)))
	const first = faultyNode + ": GPUMemoryRemapPending: GPU 0000:1b:00.0; GPUApplicationError: GPU 0000:1b:00.0, Xid 13"
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", faultyNode) }).Should(ConsistOf(
		And(HaveField("Type", "Warning"), HaveField("Reason", "GPUMemoryRemapPending"), HaveField("Message", first))))
	e.reports(fmt.Sprintf(`{"boot":%q,"faults":[],"notes":[%s,%s]}`, boot, remap, note("App", "GPUApplicationError", 31)))
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", faultyNode) }).Should(And(HaveLen(2), ContainElement(
		HaveField("Message", faultyNode+": GPUApplicationError: GPU 0000:1b:00.0, Xid 31"))))
	e.Expect(e.healthOf()).To(Equal("True GPUsHealthy"))
	e.settled()
	e.Expect(e.operatorCalls(begin).Writes()).To(BeEmpty(), "nothing but the Events")
	e.quietSince("5 s with notes", e.mark(), 5*time.Second)
}

// TestTheHealthAgentNeedsItsFence: without the admission policy, RBAC would let the pods of the agent patch every node.
func TestTheHealthAgentNeedsItsFence(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.removePolicy(labels.AgentPolicyBinding)
	e.run()
	object := e.samplePolicy()
	object.Spec.Health = &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}}
	e.create(object)
	agent := func() []v1.OperandStatus { return e.policy().Status.Operands }
	e.Eventually(agent).Should(ContainElement(And(HaveField("Name", "health-agent"),
		HaveField("State", v1.OperandInvalid), HaveField("Reason", v1.ReasonAdmissionPolicyMissing))))
	e.Expect(e.written()).NotTo(HaveKey("DaemonSet nvidia-gpu-health"))
	e.applyFence()
	e.Eventually(agent).Should(ContainElement(And(HaveField("Name", "health-agent"),
		HaveField("State", v1.OperandReady))))
}

// reportsHealth writes the report of the health agent of the faulty node, as the agent does.
func (e *env) reportsHealth(boot, faults string) {
	e.t.Helper()
	e.reports(fmt.Sprintf(`{"boot":%q,"faults":[%s]}`, boot, faults))
}

// reports writes a report as the health agent of the faulty node does.
func (e *env) reports(report string) {
	e.t.Helper()
	e.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: faultyNode}}, fmt.Sprintf(
		`{"metadata": {"annotations": {%q: %q}}}`, healthAnnotation, report))
}

func (e *env) healthCondition() *corev1.NodeCondition {
	e.t.Helper()
	conditions := e.node(faultyNode).Status.Conditions
	for i := range conditions {
		if conditions[i].Type == "nvidia.com/GPUHealthy" {
			return &conditions[i]
		}
	}
	return nil
}

// healthOf returns status and reason of the health condition of the faulty node; empty if it has none.
func (e *env) healthOf() string {
	e.t.Helper()
	condition := e.healthCondition()
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}
