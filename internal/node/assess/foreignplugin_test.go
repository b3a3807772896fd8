package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// pluginPod is a pod of the device plugin with this state of its only container, which is not ready.
func pluginPod(state, last corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodPending,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
		},
		InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "gpu-node-wait", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state, LastTerminationState: last}},
	}}
}

// A device plugin that is not the operator's is reported once a node has offered GPUs for 2 minutes although the
// operator's own has not started. Restarts of the operator's own are none, nor is anything that explains itself.
func TestForeignDevicePlugin(t *testing.T) {
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 255}}
	foreign := func() *corev1.Pod { return pluginPod(waits, corev1.ContainerState{}) }
	tests := map[string]struct {
		pod     *corev1.Pod
		change  func(*assess.Input)
		reason  string
		notices bool
	}{
		"the operator's waits for the driver": {pod: foreign(), reason: "ForeignDevicePlugin", notices: true},
		"the operator's restarts":             {pod: pluginPod(waits, ended)},
		"the operator's has just ended":       {pod: pluginPod(ended, corev1.ContainerState{})},
		"the operator's runs, and is not ready": {
			pod: pluginPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{}),
		},
		"the operator's is being replaced": {pod: foreign(), change: func(in *assess.Input) {
			in.Pods["device-plugin"].DeletionTimestamp = &metav1.Time{Time: begin}
		}},
		"the operator's waits for its label": {
			change: func(in *assess.Input) { delete(in.Pods, "device-plugin") }, reason: "ForeignDevicePlugin", notices: true,
		},
		"the operator's has no pod for now": {change: func(in *assess.Input) {
			delete(in.Pods, "device-plugin")
			in.Node.Labels = map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true"}
		}},
		"the kubelet has withdrawn the GPUs": {pod: foreign(), change: func(in *assess.Input) {
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
		}},
		"the kubelet does not report": {pod: foreign(), change: func(in *assess.Input) {
			in.Node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}},
		"the operator's is turned off for the node": {pod: foreign(), change: func(in *assess.Input) {
			in.NodePlan.Essential[0].Expectation = plan.OptedOut
		}},
		"the operator's is paused": {pod: foreign(), change: func(in *assess.Input) {
			in.NodePlan.Essential[0].Expectation = plan.PausedByLabel
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			in := assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{}), NeedsAllocatable: true,
					Essential: []plan.OperandOnNode{
						{Operand: "device-plugin", Stage: v1.StageDevicePlugin, Expectation: plan.Expected},
					},
				},
				Node: gpuNode(eight, eight), Pods: assess.Pods{operand.Name("device-plugin"): test.pod}, Now: begin,
			}
			if test.change != nil {
				test.change(&in)
			}
			first := assess.Node(in)
			g.Expect(first.Reason).NotTo(Equal("ForeignDevicePlugin"), "not at once")
			g.Expect(first.ForeignSince.IsZero()).To(Equal(!test.notices))
			in.ForeignSince, in.Now = first.ForeignSince, begin.Add(assess.ForeignPluginTime-time.Second)
			g.Expect(assess.Node(in).Reason).NotTo(Equal("ForeignDevicePlugin"), "not before its time")
			if !test.notices {
				// Not even if it has been noticed before.
				in.ForeignSince = begin
			}
			in.Now = begin.Add(assess.ForeignPluginTime)
			last := assess.Node(in)
			if !test.notices {
				g.Expect(last.Reason).NotTo(Equal("ForeignDevicePlugin"))
				return
			}
			g.Expect(last.Reason).To(Equal(test.reason))
			g.Expect(last.Stage).To(Equal(v1.StageDevicePlugin), "it is not validated")
			g.Expect(last.Usable).To(BeFalse())
			g.Expect(last.Message).To(Equal("the node offers 8 nvidia.com/gpu, but not by device-plugin, which has not " +
				"started: remove the other device plugin, or set spec.devicePlugin.enabled to false"))
			g.Expect(first.Until).To(BeTemporally("<=", begin.Add(assess.ForeignPluginTime)), "it is looked at again")
		})
	}
}
