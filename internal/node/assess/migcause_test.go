package assess_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// What the MIG manager says follows the message, and is not part of the cause.
func TestTheWordsOfTheMIGManager(t *testing.T) {
	for name, test := range map[string]struct{ words, want string }{
		"known": {
			"no 'room'", "a: stage Allocatable, operand mig-manager: MIG layout all-1g.10gb could not be applied: " +
				`see kubectl -n n logs nvidia-mig-manager-x: the MIG manager: "no 'room'"`,
		},
		"not known": {
			"", "a: stage Allocatable, operand mig-manager: MIG layout all-1g.10gb could not be applied: " +
				"see kubectl -n n logs nvidia-mig-manager-x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			gpus := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			node := gpuNode(gpus, gpus)
			node.Labels = map[string]string{"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "failed"}
			plugin := plan.OperandOnNode{Operand: "device-plugin", Stage: v1.StageDevicePlugin, Expectation: plan.Expected}
			manager := driverPod(readiness.Ready)
			manager.Namespace, manager.Name = "n", "nvidia-mig-manager-x"
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{}), NeedsAllocatable: true, Partitioner: "mig-manager",
					Essential: []plan.OperandOnNode{plugin},
					Auxiliary: []plan.OperandOnNode{{Operand: "mig-manager", Expectation: plan.Expected}},
				},
				Node: node, Pods: assess.Pods{"device-plugin": driverPod(readiness.Ready), "mig-manager": manager},
				Now:      begin,
				MIGCause: test.words, MIGCauseSought: true,
			})
			g.Expect(got.Condition("a").Message).To(Equal(test.want))
			g.Expect(test.want).To(HavePrefix(got.Cause("a")))
			g.Expect(got.Cause("a")).NotTo(ContainSubstring("the MIG manager"))
			g.Expect(got.DetailLasts).To(BeTrue())
			g.Expect(got.Operands["mig-manager"].Detail).To(Equal(got.Detail))
		})
	}
}
