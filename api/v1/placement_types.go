package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// PlacementSpec tells where the pods of an operand go, and what they are given there.
type PlacementSpec struct {
	// Tolerations replaces daemonsets.tolerations for this operand.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// NodeSelector are the labels of the GPU nodes that get this operand; it replaces
	// daemonsets.nodeSelector. A node that has the driver keeps it, and says how to take it off.
	// +optional
	NodeSelector Labels `json:"nodeSelector,omitempty"`
	// Labels of the operand's DaemonSets and pods. They win over daemonsets.labels, and replace none that
	// the operator sets itself.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations of the operand's DaemonSets and pods, as labels; dcgmExporter.annotations of the pods
	// alone.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
	// PriorityClassName of the pods. Default daemonsets.priorityClassName.
	// +optional
	PriorityClassName ObjectName `json:"priorityClassName,omitempty"`
	// ContainerResources replaces resources for single containers, init containers among them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	ContainerResources []ContainerResources `json:"containerResources,omitempty"`
}

// ContainerResources are the compute resources of one container.
type ContainerResources struct {
	// Name of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name                 string `json:"name"`
	ResourceRequirements `json:",inline"`
}
