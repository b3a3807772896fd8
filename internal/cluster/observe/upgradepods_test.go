package observe_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// waiting, running and ended are the states of a container.
func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "said so"}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

// The images are there once each container has got past its pull, whatever becomes of it then.
func TestPulledImages(t *testing.T) {
	failed := func(reason string) upgrade.Pod {
		return upgrade.Pod{Failed: true, Reason: reason, Message: "image example.com/1: said so"}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		states []corev1.ContainerState
		want   upgrade.Pod
	}{
		"the kubelet has not begun": {want: upgrade.Pod{}},
		"both are being pulled": {
			states: []corev1.ContainerState{waiting("ContainerCreating"), waiting("ContainerCreating")},
		},
		"one is being pulled":  {states: []corev1.ContainerState{ended(0), waiting("ContainerCreating")}},
		"one has no state yet": {states: []corev1.ContainerState{ended(0), {}}},
		"both commands have ended": {
			states: []corev1.ContainerState{ended(0), ended(0)},
			want:   upgrade.Pod{Ready: true},
		},
		"a command does not exist": {
			states: []corev1.ContainerState{ended(128), waiting("CreateContainerError")},
			want:   upgrade.Pod{Ready: true},
		},
		"an image needs root": {
			states: []corev1.ContainerState{waiting("CreateContainerConfigError"), running()},
			want:   upgrade.Pod{Ready: true},
		},
		"the tag does not exist": {
			states: []corev1.ContainerState{ended(0), waiting("ErrImagePull")},
			want:   failed("ErrImagePull"),
		},
		"the kubelet waits": {
			states: []corev1.ContainerState{waiting("ContainerCreating"), waiting("ImagePullBackOff")},
			want:   failed("ImagePullBackOff"),
		},
		"the reference is wrong": {
			states: []corev1.ContainerState{ended(0), waiting("InvalidImageName")},
			want:   failed("InvalidImageName"),
		},
		"the image must be there and is not": {
			states: []corev1.ContainerState{ended(0), waiting("ErrImageNeverPull")},
			want:   failed("ErrImageNeverPull"),
		},
		"the signature is rejected": {
			states: []corev1.ContainerState{ended(0), waiting("SignatureValidationFailed")},
			want:   failed("SignatureValidationFailed"),
		},
		"the node has no room for more pods": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "110 of 110"},
			want: upgrade.Pod{
				Failed: true, Reason: "OutOfpods", Message: "the pod that pulls the images failed: OutOfpods: 110 of 110",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.DriverPull: labels.True}}, Status: test.status,
			}
			for i, state := range test.states {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
					Image: "example.com/" + string(rune('0'+i)), State: state,
				})
			}
			NewWithT(t).Expect(observe.UpgradePod(pod, time.Now())).To(Equal(test.want))
		})
	}
}

func TestUpgradePod(t *testing.T) {
	created := time.Unix(1_700_000_000, 0)
	manager := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "k8s-driver-manager", State: state}}
	}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		ending bool
		check  func(Gomega, upgrade.Pod)
	}{
		"ready": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				scheduled, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
			check: func(g Gomega, pod upgrade.Pod) {
				g.Expect(pod).To(Equal(upgrade.Pod{Name: "p", UID: "u", Created: created, Digest: "d", Ready: true}))
			},
		},
		"its first container has not started": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}},
			check:  func(g Gomega, pod upgrade.Pod) { g.Expect(pod.Unloading).To(BeTrue()) },
		},
		"it unloads the old driver": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, InitContainerStatuses: manager(running())},
			check:  func(g Gomega, pod upgrade.Pod) { g.Expect(pod.Unloading).To(BeTrue()) },
		},
		"it cannot unload the old driver": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, InitContainerStatuses: manager(ended(1))},
			check: func(g Gomega, pod upgrade.Pod) {
				g.Expect(pod.Unloading).To(BeTrue())
				g.Expect(pod.Failed).To(BeTrue())
				g.Expect(pod.Message).To(ContainSubstring("k8s-driver-manager"))
			},
		},
		"it builds the new driver": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, InitContainerStatuses: manager(ended(0))},
			check:  func(g Gomega, pod upgrade.Pod) { g.Expect(pod.Unloading).To(BeFalse()) },
		},
		"it is being deleted": {
			ending: true,
			check: func(g Gomega, pod upgrade.Pod) {
				g.Expect(pod.Ending).To(BeTrue())
				g.Expect(pod.Ready).To(BeFalse())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: "p", UID: "u", CreationTimestamp: metav1.NewTime(created),
					Labels:      map[string]string{labels.Operand: "driver"},
					Annotations: map[string]string{labels.TemplateDigest: "d"},
				},
				Status: test.status,
			}
			if test.ending {
				pod.DeletionTimestamp = new(metav1.Now())
			}
			test.check(NewWithT(t), observe.UpgradePod(pod, created.Add(time.Hour)))
		})
	}
}
