package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestLossesAfterTheValidationAreReported: the validator of a ready node finds that a GPU is gone. The node reports it
// with the validator's words, by spec.health.minUsable, without a write per restart of the container; its operands stay
// as they are, and its recovery is noticed.
func TestLossesAfterTheValidationAreReported(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	operands := e.otherOperandPods()

	e.sim.Break("operator-validator", startingNode, simulator.LosesGPU)
	e.Eventually(e.startingReady).Should(And(
		HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "GPUsMissing"),
		HaveField("Message", ContainSubstring(
			"7 of 8 GPUs usable: 1 of 8 GPUs lost since the validation: 0000:1b:00.0 is not listed by the driver"))))
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ConsistOf(
		And(HaveField("Ready", false), HaveField("Reason", "GPUsMissing"))))
	mark := e.mark()
	e.respec(func(spec *v1.ClusterPolicySpec) {
		spec.Health = &v1.HealthSpec{MinUsable: new(intstr.FromInt32(7))}
	})
	e.Eventually(e.startingReady).Should(And(
		HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "GPUsMissing")))
	restarts := e.validatorRestarts()
	e.Eventually(e.validatorRestarts).WithTimeout(time.Minute).Should(BeNumerically(">", restarts))
	e.Expect(e.operatorCalls(mark).Of("nodes").Writes()).To(HaveLen(1), "the changed condition; none for a restart")
	e.Expect(e.otherOperandPods()).To(Equal(operands))

	e.sim.Heal("operator-validator", startingNode)
	e.Eventually(e.startingReady).WithTimeout(3 * time.Minute).Should(
		And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "GPUReady")))
}

func (e *env) validatorRestarts() int32 {
	e.t.Helper()
	var restarts int32
	for _, pod := range e.operandPods() {
		if pod.Labels["app"] == startingProbe && len(pod.Status.ContainerStatuses) > 0 {
			restarts += pod.Status.ContainerStatuses[0].RestartCount
		}
	}
	return restarts
}

// otherOperandPods returns the restarts of the operands' pods but the validator's.
func (e *env) otherOperandPods() map[string]int32 {
	e.t.Helper()
	restarts := map[string]int32{}
	for _, pod := range e.operandPods() {
		if pod.Labels["app"] == startingProbe {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			restarts[pod.Name] += status.RestartCount
		}
	}
	return restarts
}
