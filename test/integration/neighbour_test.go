package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/retry"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestForeignDevicePluginIsReported: the driver takes long on a node where another device plugin offers GPUs. The node
// is reported once that has lasted, and is validated and ready when the operator's own plugin has started.
func TestForeignDevicePluginIsReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode})
	e.Expect(err).NotTo(HaveOccurred())
	e.sim.Break("driver", startingNode, simulator.NeverReady)
	e.run()
	e.create(e.samplePolicy())
	e.Eventually(e.stage).Should(Equal(v1.StageDriver))
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := e.node(startingNode)
		for _, resources := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
			if *resources == nil {
				*resources = corev1.ResourceList{}
			}
			(*resources)["nvidia.com/gpu"] = resource.MustParse("8")
		}
		return e.client.Status().Update(t.Context(), node)
	})).To(Succeed())
	e.Eventually(e.startingReady).WithTimeout(4 * time.Minute).Should(And(
		HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "ForeignDevicePlugin"),
		HaveField("Message", ContainSubstring("stage DevicePlugin, operand device-plugin: the node offers 8 nvidia.com"))))
	e.sim.Heal("driver", startingNode)
	e.awaitReady(1)
}

// stage returns the stage of the starting node in the policy's status; empty if it has none.
func (e *env) stage() v1.Stage {
	e.t.Helper()
	for _, node := range e.policy().Status.Nodes {
		return node.Stage
	}
	return ""
}
