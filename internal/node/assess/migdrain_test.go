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

// A node that is drained for a MIG layout is ready, and says what it waits for; so does one whose drain has failed.
func TestDrainForALayout(t *testing.T) {
	for name, test := range map[string]struct {
		record, state string
		tenants       []string
		reason        string
		message       string
	}{
		"evictions": {
			record: `{"uid":"one","state":"evicts-users","layout":"a"}`, tenants: []string{"n/web"},
			reason: v1.ReasonMIGConfigDraining, message: "the node is cordoned for MIG layout a, and evicts pods n/web",
		},
		"evictions after a layout that has failed": {
			record: `{"uid":"one","state":"evicts-all","layout":"a"}`, state: "failed",
			reason:  v1.ReasonMIGConfigDraining,
			message: "the node is cordoned for MIG layout a, and evicts the pods that use the GPUs",
		},
		"jobs": {
			record: `{"uid":"one","state":"waits-for-jobs","layout":"a"}`, reason: v1.ReasonMIGConfigDraining,
			message: "the node is cordoned for MIG layout a, which waits for the jobs of upgradePolicy.waitForCompletion to end",
		},
		"a blocked eviction": {
			record: `{"uid":"one","state":"evicts-users","layout":"a","message":"PDB n/web allows 0 disruptions: pod n/web"}`,
			reason: v1.ReasonMIGConfigDraining, tenants: []string{"n/web"},
			message: "PDB n/web allows 0 disruptions: pod n/web; the node is drained for MIG layout a",
		},
		"a failed drain": {
			record: `{"uid":"one","state":"failed","layout":"a","message":"drain.timeoutSeconds has passed: PDB n/web"}`,
			reason: v1.ReasonMIGConfigHeld, tenants: []string{"n/web"},
			message: "MIG layout a waits for the pods that use the GPUs: drain.timeoutSeconds has passed: PDB n/web",
		},
		"a failed drain for another layout": {
			record: `{"uid":"one","state":"failed","layout":"b","message":"x"}`, tenants: []string{"n/web"},
			reason: v1.ReasonMIGConfigHeld, message: "MIG layout a waits for pods n/web to end",
		},
		"a record that cannot be read": {
			record: `cordoned`, tenants: []string{"n/web"}, reason: v1.ReasonMIGConfigHeld,
			message: "annotation nvidia.com/gpu-operator.mig-drain cannot be read: remove it, and uncordon the node unless " +
				"someone works on it",
		},
		"another node's record": {
			record: `{"uid":"two","state":"evicts-users","layout":"a"}`, tenants: []string{"n/web"},
			reason: v1.ReasonMIGConfigHeld, message: "MIG layout a waits for pods n/web to end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			node := gpuNode(gpus, gpus)
			node.UID = "one"
			node.Labels = map[string]string{"nvidia.com/mig.config": "z", "nvidia.com/mig.config.state": test.state}
			node.Annotations = map[string]string{"nvidia.com/gpu-operator.mig-drain": test.record}
			in := assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{}), NeedsAllocatable: true, Partitioner: "mig-manager", MIGWanted: "a",
					Essential: []plan.OperandOnNode{
						{Operand: "device-plugin", Stage: v1.StageDevicePlugin, Expectation: plan.Expected},
					},
				},
				Node: node, Pods: assess.Pods{"device-plugin": driverPod(readiness.Ready)}, Now: begin, Tenants: test.tenants,
			}
			g := NewWithT(t)
			got := assess.Node(in)
			g.Expect(got.State).To(Equal(readiness.Ready))
			g.Expect(got.Reason).To(Equal(test.reason))
			g.Expect(got.Message).To(Equal(test.message))
			in.NodePlan.Essential[0].Expectation = plan.PausedByLabel
			in.NodePlan.Essential[0].Reason = v1.ReasonOperandPaused
			paused := assess.Node(in)
			g.Expect(paused.State).To(Equal(readiness.Progressing), "no GPU can be used")
			g.Expect(paused.Reason).To(Equal(v1.ReasonOperandPaused))
		})
	}
}
