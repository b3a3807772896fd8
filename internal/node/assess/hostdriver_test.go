package assess_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// validatedFor is a pod that is, or is not, ready, and whose init container has validated this driver instance.
func validatedFor(instance string, ready corev1.ConditionStatus) *corev1.Pod {
	pod := readyPod()
	pod.Status.Conditions[1].Status = ready
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "driver-validation", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if instance != "" {
		pod.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: "validated for driver instance " + instance + "\n",
		}}
	}
	return pod
}

// A label that leaves the driver to the host is named while the node is not ready and no such driver is validated.
func TestADriverOfTheHostThatIsNot(t *testing.T) {
	const label = `label nvidia.com/gpu.deploy.driver is "pre-installed", but no driver of the host is validated (if it ` +
		"has none, remove the label): "
	const earlier = `label nvidia.com/gpu.deploy.driver is "pre-installed", but an earlier driver was validated by ` +
		"container-toolkit (if the host has no driver, remove the label, otherwise delete these pods): "
	for name, test := range map[string]struct {
		driver  plan.Expectation
		toolkit *corev1.Pod
		gpus    int64
		message string
	}{
		"it is being validated": {plan.HostProvides, validatedFor("", corev1.ConditionFalse), 0,
			"a: stage Toolkit, operand container-toolkit: " + label + "init container driver-validation is running"},
		"what was validated is the driver of a pod": {plan.HostProvides, validatedFor("uid", corev1.ConditionTrue), 0,
			"a: stage Allocatable, operand device-plugin: " + earlier +
				"the device plugin is restarting or reports all GPUs as unhealthy"},
		"what was validated is the driver of a pod that is about to end": {plan.HostProvides,
			validatedFor("present", corev1.ConditionTrue), 0,
			"a: stage Allocatable, operand device-plugin: " + label +
				"the device plugin is restarting or reports all GPUs as unhealthy"},
		"what was validated is of a container that has no name": {plan.HostProvides,
			validatedFor("since-1700000000.000000001", corev1.ConditionTrue), 0,
			"a: stage Allocatable, operand device-plugin: " + label +
				"the device plugin is restarting or reports all GPUs as unhealthy"},
		"it is validated": {plan.HostProvides, validatedFor("none", corev1.ConditionTrue), 0,
			"a: stage Allocatable, operand device-plugin: the device plugin is restarting or reports all GPUs as unhealthy"},
		"the node is ready": {plan.HostProvides, validatedFor("none", corev1.ConditionTrue), 8, "a: GPUs can be used"},
		"a driver container": {plan.Expected, validatedFor("", corev1.ConditionFalse), 0,
			"a: stage Toolkit, operand container-toolkit: init container driver-validation is running"},
	} {
		t.Run(name, func(t *testing.T) {
			in := besideOperands()
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8},
				map[corev1.ResourceName]int64{"nvidia.com/gpu": test.gpus})
			in.NodePlan.Essential = append([]plan.OperandOnNode{
				{
					Operand: "driver", Stage: v1.StageDriver, Expectation: test.driver,
					Message: `label nvidia.com/gpu.deploy.driver is "pre-installed"`,
				},
				{Operand: "container-toolkit", Stage: v1.StageToolkit},
			}, in.NodePlan.Essential...)
			in.Pods["container-toolkit"] = test.toolkit
			if test.driver == plan.Expected || strings.Contains(name, "about to end") {
				in.Pods["driver"] = readyPod()
				in.Pods["driver"].UID = "present"
			}
			a := assess.Node(in)
			NewWithT(t).Expect(a.Condition("a").Message).To(Equal(test.message))
		})
	}
}

// With the driver off by the spec, the pods that have validated an earlier driver of the operator are named while the
// node is not ready: a container of another program, or no driver at all, is what the spec allows.
func TestAnEarlierDriverThatTheSpecTurnedOff(t *testing.T) {
	const cause = "the device plugin is restarting or reports all GPUs as unhealthy"
	for name, test := range map[string]struct{ instance, note string }{
		"of a pod that is gone": {"uid", "spec.driver.enabled is false, but an earlier driver was validated by " +
			"container-toolkit (if the host has no driver, set it to true, otherwise delete these pods): "},
		"of the host":                  {"none", ""},
		"of another program's":         {"since-1700000000.000000001", ""},
		"not validated by a container": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := besideOperands()
			in.NodePlan.Spec = effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}})
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
			in.NodePlan.Essential = append([]plan.OperandOnNode{
				{Operand: "container-toolkit", Stage: v1.StageToolkit},
			}, in.NodePlan.Essential...)
			in.Pods["container-toolkit"] = validatedFor(test.instance, corev1.ConditionTrue)
			if test.instance == "" {
				in.Pods["container-toolkit"] = readyPod()
			}
			a := assess.Node(in)
			NewWithT(t).Expect(a.Message).To(Equal(test.note + cause))
		})
	}
}
