package readiness

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// ValidatedAnother reports whether an init container of the pod has validated another driver than this instance: the
// UID of a driver's pod, or labels.NoDriverInstance. It does by its termination message. A pod without such a message
// has validated none, as far as is known: its gpu-node is older than the message, or its containers do not really run.
func ValidatedAnother(pod *corev1.Pod, instance string) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(status corev1.ContainerStatus) bool {
		found, validated := validatedInstance(&status)
		return validated && found != instance
	})
}

// ValidatedHost reports whether an init container of the pod has validated a driver that is of no pod of the operator.
func ValidatedHost(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(status corev1.ContainerStatus) bool {
		instance, validated := validatedInstance(&status)
		return validated && instance == labels.NoDriverInstance
	})
}

// ValidatedDriverPod returns the UID of the driver's pod that an init container of the pod has validated; empty if it
// has validated none, as far as is known, or a driver that is of no pod of the operator.
func ValidatedDriverPod(pod *corev1.Pod) types.UID {
	for i := range pod.Status.InitContainerStatuses {
		instance, validated := validatedInstance(&pod.Status.InitContainerStatuses[i])
		if validated && instance != labels.NoDriverInstance && !strings.HasPrefix(instance, labels.UnnamedInstancePrefix) {
			return types.UID(instance)
		}
	}
	return ""
}

// Validations returns what ValidatedAnother reads of the statuses of a pod's init containers.
func Validations(pod *corev1.Pod) []corev1.ContainerStatus {
	var found []corev1.ContainerStatus
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if _, validated := validatedInstance(status); validated {
			found = append(found, corev1.ContainerStatus{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: status.State.Terminated.Message},
			}})
		}
	}
	return found
}

// validatedInstance returns the driver instance that a container has validated; false if it does not name one.
func validatedInstance(status *corev1.ContainerStatus) (instance string, validated bool) {
	if status.State.Terminated == nil {
		return "", false
	}
	instance, validated = strings.CutPrefix(status.State.Terminated.Message, labels.ValidatedMessage)
	return strings.TrimSpace(instance), validated
}
