package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// run has the container of a pod of the first node that is ready run for a minute.
func (e *env) setRunning(name operand.Name, container string) {
	since := metav1.NewTime(now.Add(-time.Minute))
	pod := e.pod(0, name)
	e.snapshot.DaemonSets[string(name)].Spec.Template.Spec.Containers = []corev1.Container{{Name: container}, {Name: "beside"}}
	for j := range pod.Status.Conditions {
		if pod.Status.Conditions[j].Type == corev1.PodReady {
			pod.Status.Conditions[j].LastTransitionTime = since
		}
	}
}

// awaitHandler has the container runtime of the first node not know the handler of a pod's RuntimeClass.
func (e *env) withoutHandler(name operand.Name) {
	pod := e.pod(0, name)
	pod.Spec.RuntimeClassName = new("nvidia")
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse},
	}
}

// made has a pod of the first node with the RuntimeClass, whose sandbox was made that long ago.
func (e *env) setSandboxCreated(name operand.Name, ago time.Duration) {
	pod := e.pod(0, name)
	pod.Spec.RuntimeClassName = new("nvidia")
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	})
}
