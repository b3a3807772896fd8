package assess

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Pods are the pods of operands on one node.
type Pods map[operand.Name]*corev1.Pod

// Add keeps one pod of each operand: the youngest one that is not being deleted.
func (p Pods) Add(pod *corev1.Pod) {
	name := operand.Name(pod.Labels[labels.Operand])
	if name == "" {
		return
	}
	current := p[name]
	switch {
	case current == nil, current.DeletionTimestamp != nil && pod.DeletionTimestamp == nil:
		p[name] = pod
	case pod.DeletionTimestamp == nil && current.CreationTimestamp.Before(&pod.CreationTimestamp):
		p[name] = pod
	}
}

// Stack has the cluster-wide objects that nodes are assessed by. It is immutable.
type Stack struct {
	// DaemonSets by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// CreateFailures by name of the DaemonSet.
	CreateFailures map[string]PodFailure
	// StartFailures by UID of the pod.
	StartFailures map[types.UID]PodFailure
}

// PodFailure is why the DaemonSet controller cannot create a pod, or the kubelet cannot start the first container of
// one, as an Event reports it.
type PodFailure struct {
	// Reason is one of package api/v1, such as QuotaExceeded or FailedMount.
	Reason string
	// Message of the API server or the kubelet, which may change with each attempt.
	Message string
}

// explainStart gives the verdict on a pod that has no sandbox yet the failure that the kubelet reports; without one it
// returns the verdict as it is.
func (s Stack) explainStart(verdict readiness.Verdict, pod *corev1.Pod) readiness.Verdict {
	failure, fails := s.StartFailures[pod.UID]
	if !fails || verdict.Reason != v1.ReasonStarting || !readiness.AwaitsSandbox(pod) {
		return verdict
	}
	verdict.State, verdict.Reason = readiness.Failed, failure.Reason
	verdict.Message, verdict.Detail = "the kubelet cannot start the pod", failure.Message
	return verdict
}
