package assess

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
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
	CreateFailures map[string]CreateFailure
}

// CreateFailure is why the DaemonSet controller cannot create a DaemonSet's pods.
type CreateFailure struct {
	// Reason is one of package api/v1, such as QuotaExceeded.
	Reason string
	// Message of the API server, which may change with each attempt.
	Message string
}
