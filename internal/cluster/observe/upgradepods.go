package observe

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UpgradePod returns what the planner of driver upgrades has to know of a pod of the stack at this time.
func UpgradePod(pod *corev1.Pod, now time.Time) upgrade.Pod {
	found := upgrade.Pod{
		Name: pod.Name, UID: pod.UID, Created: pod.CreationTimestamp.Time,
		Digest: pod.Annotations[labels.TemplateDigest],
		Ending: pod.DeletionTimestamp != nil,
	}
	if found.Ending {
		found.EndsAt = pod.DeletionTimestamp.Time
	}
	if pod.Labels[labels.DriverPull] != "" {
		addPulled(&found, pod)
		return found
	}
	verdict := readiness.Pod(pod, found.Digest, now)
	found.Ready, found.Failed = verdict.State == readiness.Ready, verdict.State == readiness.Failed
	if !found.Ready {
		found.Reason, found.Message = verdict.Reason, verdict.Message
		found.Unloading = isUnloading(pod)
	}
	return found
}

// isUnloading reports whether k8s-driver-manager has not finished in the pod, which is not ready.
func isUnloading(pod *corev1.Pod) bool {
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == labels.DriverManagerContainer {
			return status.State.Terminated == nil || status.State.Terminated.ExitCode != 0
		}
	}
	// The kubelet has not started the pod yet.
	return true
}

// pullFailures are the kubelet's waiting reasons of a container whose image cannot be pulled.
var pullFailures = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true,
	"RegistryUnavailable": true, "SignatureValidationFailed": true, "ImageInspectError": true,
}

// addPulled sets whether all images of a pod that only pulls them are on the node. Whether a container then starts does
// not matter: its command need not exist in the image.
func addPulled(found *upgrade.Pod, pod *corev1.Pod) {
	statuses := pod.Status.ContainerStatuses
	found.Ready = len(statuses) > 0 || readiness.PodIsReady(pod)
	for i := range statuses {
		waiting := statuses[i].State.Waiting
		if waiting != nil && pullFailures[waiting.Reason] {
			found.Ready, found.Failed, found.Reason = false, true, waiting.Reason
			found.Message = text.Join(fmt.Sprintf("image %s", statuses[i].Image), waiting.Message)
			return
		}
		found.Ready = found.Ready && isPulled(&statuses[i].State)
	}
	if pod.Status.Phase == corev1.PodFailed && len(statuses) == 0 {
		// The kubelet has rejected it.
		found.Failed, found.Reason = true, pod.Status.Reason
		found.Message = text.Join("the pod that pulls the images failed", pod.Status.Reason, pod.Status.Message)
	}
}

// isPulled reports whether the container has got beyond the pull of its image, whatever became of its command.
func isPulled(state *corev1.ContainerState) bool {
	if waiting := state.Waiting; waiting != nil {
		return waiting.Reason != "" && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing"
	}
	return state.Running != nil || state.Terminated != nil
}
