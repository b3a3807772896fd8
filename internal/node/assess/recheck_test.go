package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// validatorPod is a validator whose main container has ended with the code, and runs again since the given time.
func validatorPod(code int32, init bool, since time.Time) *corev1.Pod {
	ended := corev1.ContainerStatus{Name: "main", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Message: "1 of 8 GPUs lost since the validation", FinishedAt: metav1.NewTime(begin),
		},
	}, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	ready := corev1.ConditionFalse
	if !since.IsZero() {
		ready, ended.Ready = corev1.ConditionTrue, true
		ended.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
	}}}
	if init {
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{ended}
	} else {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended}
	}
	return pod
}

// A loss of some GPUs that the validator finds later is counted, and the other GPUs stay usable. A loss of all, and any
// other end of its containers, is a failure of the node.
func TestGPUsLostSinceTheValidation(t *testing.T) {
	const lost = "7 of 8 GPUs usable: 1 of 8 GPUs lost since the validation"
	tests := map[string]struct {
		pod        *corev1.Pod
		min        string
		ready      bool
		usable     bool
		reason     string
		message    string
		usableGPUs int
	}{
		"one GPU": {
			pod: validatorPod(65, false, time.Time{}), usable: true, reason: "GPUsMissing", message: lost, usableGPUs: 7,
		},
		"one GPU, which may be lost": {
			pod: validatorPod(65, false, time.Time{}), min: "50%", ready: true, usable: true, reason: "GPUsMissing",
			message: lost, usableGPUs: 7,
		},
		"one GPU, while the container runs again": {
			pod: validatorPod(65, false, begin), usable: true, reason: "GPUsMissing", message: lost, usableGPUs: 7,
		},
		"none any more": {
			pod: validatorPod(65, false, begin.Add(-time.Minute)), ready: true, usable: true, usableGPUs: 8,
		},
		"all GPUs": {
			pod: validatorPod(1, false, time.Time{}), reason: "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 1", usableGPUs: 8,
		},
		"another exit code": {
			pod: validatorPod(137, false, time.Time{}), reason: "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 137", usableGPUs: 8,
		},
		"an init container": {
			pod: validatorPod(65, true, time.Time{}), reason: "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 65", usableGPUs: 8,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := v1.ClusterPolicySpec{}
			if test.min != "" {
				spec.Health = &v1.HealthSpec{MinUsable: new(intstr.FromString(test.min))}
			}
			eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(spec), NeedsAllocatable: true,
					Essential: []plan.OperandOnNode{
						{Operand: "operator-validator", Stage: v1.StageValidated, Expectation: plan.Expected},
					},
				},
				Node: gpuNode(eight, eight), Pods: assess.Pods{"operator-validator": test.pod}, Now: begin,
			})
			g.Expect(got.Ready()).To(Equal(test.ready))
			g.Expect(got.Usable).To(Equal(test.usable))
			g.Expect(got.Reason).To(Equal(test.reason))
			g.Expect(got.Message).To(Equal(test.message))
			g.Expect(got.GPUs.Usable).To(Equal(test.usableGPUs))
		})
	}
}
