package guides

import (
	"fmt"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const reasonUnhealthy = "GPUsUnhealthy"

// expectSeven expects that the policy's status and the scheduler see 7 of 8 GPUs.
func (e *env) expectSeven() {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.verdict("unhealthy")).To(And(Not(BeNil()), HaveField("Reason", reasonUnhealthy),
			HaveField("Message", ContainSubstring("7 of 8 GPUs usable")),
			HaveField("GPUs", And(HaveField("Total", int32(8)), HaveField("Usable", int32(7))))))
	}).Should(Succeed(), e.describe("unhealthy"))
}

// loseGPU makes a GPU of a node unhealthy.
func (e *env) loseGPU(node string) {
	e.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, simulator.UnhealthyAnnotation)
	e.Expect(e.client.Patch(e.t.Context(), e.node(node),
		client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

func oneOfEightUnhealthy(e *env) {
	pods := e.createPods(request{name: "of-eight", resource: wholeGPU, on: "unhealthy"}, 7)
	e.expectRunning(pods...)
	e.loseGPU("unhealthy")
	e.expectAllocatable("unhealthy", map[string]int64{wholeGPU: 7})
	capacity := e.node("unhealthy").Status.Capacity[wholeGPU]
	e.Expect(capacity.Value()).To(Equal(int64(8)))
	e.expectReported("unhealthy", reasonUnhealthy)
	e.expectSeven()
	e.expectOperandsBack("unhealthy")
	eighth := request{name: "eighth", resource: wholeGPU, on: "unhealthy"}.pod()
	e.create(eighth)
	e.expectWaiting(eighth, insufficient(wholeGPU))
	e.expectRunning(pods...)
}

func sevenAreEnough(e *env) {
	e.loseGPU("unhealthy")
	e.Eventually(func() corev1.NodeCondition { return e.condition("unhealthy") }).
		Should(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", reasonUnhealthy)), e.describe("unhealthy"))
	e.expectSeven()
	e.Eventually(func() *v1.NodeStatus { return e.verdict("unhealthy") }).Should(HaveField("Ready", true))
}
