package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNodeCondition(t *testing.T) {
	tests := map[string]struct {
		change func(*env)
		want   corev1.NodeCondition
	}{
		"works": {want: corev1.NodeCondition{Status: "True", Reason: "GPUReady", Message: "node-00000: GPUs can be used"}},
		"fails": {
			change: func(e *env) { e.failPod(0, "driver", "boom") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "CrashLoopBackOff",
				Message: "node-00000: stage Driver, operand driver: container main: CrashLoopBackOff, exit code 1: boom",
			},
		},
		"the kubelet does not answer": {
			change: func(e *env) { e.snapshot.Nodes[0].Object.Status.Conditions[0].Status = corev1.ConditionUnknown },
			want: corev1.NodeCondition{
				Status:  "False",
				Reason:  "NodeUnreachable",
				Message: "node-00000: stage Discovered: the kubelet stopped posting node status",
			},
		},
		"outdated": {
			change: func(e *env) { e.pod(0, "driver").Annotations[templateDigest] = "before" },
			want: corev1.NodeCondition{
				Status: "True", Reason: "UpgradePending",
				Message: "node-00000: GPUs can be used; driver is outdated: kubectl annotate node node-00000 " +
					"nvidia.com/gpu-driver-upgrade-requested=true",
			},
		},
		"no GPU, as the device plugin is excluded": {
			change: func(e *env) {
				e.setLabel(0, "nvidia.com/gpu.deploy.device-plugin", "false")
				delete(e.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "DevicePluginOff",
				Message: `node-00000: stage Allocatable: nothing offers the GPUs of the node: label ` +
					`nvidia.com/gpu.deploy.device-plugin is "false"`,
			},
		},
		"no GPU, though the device plugin runs": {
			change: func(e *env) { delete(e.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotAllocatable",
				Message: "node-00000: stage Allocatable, operand device-plugin: " +
					"the node has no allocatable GPU",
			},
		},
		"no GPU, and a container with a log": {
			change: func(e *env) {
				delete(e.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu")
				e.setRunning("device-plugin", "plugin")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotAllocatable",
				Message: "node-00000: stage Allocatable, operand device-plugin: " +
					"the node has no allocatable GPU: see the log of container plugin",
			},
		},
		"the toolkit hangs": {
			change: func(e *env) {
				e.setRunning("container-toolkit", "toolkit-ctr")
				e.withoutHandler("device-plugin")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage Toolkit, operand container-toolkit: " +
					"container toolkit-ctr runs, but the container runtime has created no pod with RuntimeClass nvidia yet: " +
					"if this lasts, check that it was restarted with the toolkit's configuration",
			},
		},
		"the handler works for another pod since the toolkit came up": {
			change: func(e *env) {
				e.setRunning("container-toolkit", "toolkit-ctr")
				e.withoutHandler("device-plugin")
				e.setSandboxCreated("operator-validator", 30*time.Second)
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage DevicePlugin, operand device-plugin: " +
					"the container runtime has not created the pod yet: if this lasts, check its handler of RuntimeClass nvidia",
			},
		},
		"it worked before the toolkit was replaced": {
			change: func(e *env) {
				e.setRunning("container-toolkit", "toolkit-ctr")
				e.withoutHandler("device-plugin")
				e.setSandboxCreated("operator-validator", time.Hour)
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage Toolkit, operand container-toolkit: " +
					"container toolkit-ctr runs, but the container runtime has created no pod with RuntimeClass nvidia yet: " +
					"if this lasts, check that it was restarted with the toolkit's configuration",
			},
		},
		"no pod yet": {
			change: func(e *env) { delete(e.snapshot.Pods["node-00000"], "container-toolkit") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "PodMissing",
				Message: "node-00000: stage Toolkit, operand container-toolkit: " +
					"DaemonSet container-toolkit has not created a pod on the node yet",
			},
		},
		"paused": {
			change: func(e *env) { e.setLabel(0, "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "OperandPaused",
				Message: `node-00000: stage Driver, operand driver: label nvidia.com/gpu.deploy.driver is ` +
					`"paused-for-driver-upgrade"`,
			},
		},
		"not possible, but it runs": {
			change: func(e *env) {
				e.snapshot.Nodes[0].Object.Status.NodeInfo.ContainerRuntimeVersion = "isulad://1"
				e.setLabel(0, "x", "y")
			},
			want: corev1.NodeCondition{Status: "True", Reason: "GPUReady", Message: "node-00000: GPUs can be used"},
		},
		"not possible, and it does not run": {
			change: func(e *env) {
				e.snapshot.Nodes[0].Object.Status.NodeInfo.ContainerRuntimeVersion = "isulad://1"
				e.setLabel(0, "x", "y")
				delete(e.snapshot.Pods["node-00000"], "container-toolkit")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotSupportedYet",
				Message: `node-00000: stage Toolkit, operand container-toolkit: ` +
					`container runtime "isulad" is not supported, only containerd, CRI-O and Docker: ` +
					"install the toolkit on the host and set the node's label nvidia.com/gpu.deploy.container-toolkit to " +
					"pre-installed",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			if test.change != nil {
				test.change(e)
			}
			test.want.Type = "nvidia.com/GPUReady"
			if diff := cmp.Diff(test.want, e.input().View.Nodes[0].Latest.Condition("node-00000")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
