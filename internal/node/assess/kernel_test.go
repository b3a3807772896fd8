package assess_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// A driver that does not fit the kernel of its node reports kernel, module and remedy, from the last output of its
// container.
func TestDriversThatDoNotFitTheKernel(t *testing.T) {
	const headers = "no headers for kernel 6.8.0-41: add their repository in spec.driver.repoConfig, or set usePrecompiled"
	const other = "container main: CrashLoopBackOff, exit code 1"
	rejected := func(module string) string {
		return "kernel 6.8.0-41 rejects module " + module + " (Secure Boot): use signed modules, or turn it off"
	}
	tests := map[string]struct {
		operand         operand.Name
		output          string
		reason, message string
	}{
		"the script finds no kernel package": {
			output: "Resolving Linux kernel version...\nCould not resolve Linux kernel version\nStopping NVIDIA daemon...",
			reason: v1.ReasonKernelHeadersMissing, message: headers,
		},
		"apt has no headers": {
			output: "E: Unable to locate package linux-headers-6.8.0-41-generic\nUnloading NVIDIA driver kernel modules...",
			reason: v1.ReasonKernelHeadersMissing, message: headers,
		},
		"dnf has no headers": {
			output: "Error: Unable to find a match: kernel-headers-5.14.0-427.el9.x86_64 kernel-devel-5.14.0-427.el9.x86_64",
			reason: v1.ReasonKernelHeadersMissing, message: headers,
		},
		"a module has no trusted signature": {
			output: "modprobe: ERROR: could not insert 'nvidia_uvm': Required key not available",
			reason: v1.ReasonKernelModuleRejected, message: rejected("nvidia_uvm"),
		},
		"a module has a signature of an unknown key": {
			output: "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
			reason: v1.ReasonKernelModuleRejected, message: rejected("nvidia"),
		},
		"insmod names the file": {
			output: "insmod: ERROR: could not insert module nvidia.ko: Required key not available",
			reason: v1.ReasonKernelModuleRejected, message: rejected("nvidia"),
		},
		"another package is missing": {
			output: "E: Unable to locate package nvidia-fabricmanager-595", reason: "CrashLoopBackOff", message: other,
		},
		"another operand": {
			operand: "container-toolkit", output: "Could not resolve Linux kernel version", reason: "CrashLoopBackOff",
			message: other,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			onNode := plan.OperandOnNode{Operand: "driver", Stage: v1.StageDriver, Expectation: plan.Expected}
			if test.operand != "" {
				onNode.Operand, onNode.Stage = test.operand, v1.StageToolkit
			}
			pod := driverPod(readiness.Failed)
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", Controller: new(true)}}
			pod.Status.ContainerStatuses[0].State.Terminated.Message = test.output
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Facts: nodeinfo.Facts{Kernel: "6.8.0-41"}, Spec: effective.Of(v1.ClusterPolicySpec{}),
					Essential: []plan.OperandOnNode{onNode},
				},
				Node: &corev1.Node{Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				}},
				Stack: assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{"ds": {}}},
				Pods:  assess.Pods{onNode.Operand: pod}, Now: begin,
			})
			g.Expect(got.State).To(Equal(readiness.Failed))
			g.Expect([]string{got.Reason, got.Message}).To(Equal([]string{test.reason, test.message}))
			g.Expect(len(got.Message)).To(BeNumerically("<=", 128), "the status shows all of it")
		})
	}
}

// The image of a precompiled driver exists for some kernels only.
func TestAPrecompiledDriverWithoutAnImage(t *testing.T) {
	pod := driverPod(readiness.Progressing)
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", Controller: new(true)}}
	pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "main", Image: "example.com/driver:595-6.8.0-41-ubuntu24.04",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
	}
	got := assess.Node(assess.Input{
		NodePlan: plan.NodePlan{
			Facts: nodeinfo.Facts{PoolKernel: "6.8.0-41"}, Spec: effective.Of(v1.ClusterPolicySpec{}),
			Essential: []plan.OperandOnNode{{Operand: "driver", Stage: v1.StageDriver, Expectation: plan.Expected}},
		},
		Node: &corev1.Node{Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}},
		Stack: assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{"ds": {}}},
		Pods:  assess.Pods{"driver": pod}, Now: begin,
	})
	const want = "container main: ImagePullBackOff: example.com/driver:595-6.8.0-41-ubuntu24.04: " +
		"check that it exists for kernel 6.8.0-41"
	if got.Reason != v1.ReasonImagePullBackOff || got.Message != want {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}
