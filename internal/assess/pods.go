package assess

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Pods are the operands' pods on one node.
type Pods map[operand.Name]*corev1.Pod

// Add keeps one pod of each operand: the youngest of those that are not being deleted.
func (p Pods) Add(pod *corev1.Pod) {
	name := operand.Name(pod.Labels[labels.Operand])
	if name == "" {
		return
	}
	have := p[name]
	switch {
	case have == nil, have.DeletionTimestamp != nil && pod.DeletionTimestamp == nil:
		p[name] = pod
	case pod.DeletionTimestamp == nil && have.CreationTimestamp.Before(&pod.CreationTimestamp):
		p[name] = pod
	}
}

// Stack is what is known of the stack's objects, whatever the node. It is not changed once made.
type Stack struct {
	// DaemonSets by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// CreateFailures are why the DaemonSet of that name has fewer pods than nodes.
	CreateFailures map[string]CreateFailure
}

// CreateFailure is why the DaemonSet controller cannot create a DaemonSet's pods.
type CreateFailure struct {
	// Reason is one of the API's, such as QuotaExceeded.
	Reason string
	// Message is that of the API server, which may change with each attempt.
	Message string
}
