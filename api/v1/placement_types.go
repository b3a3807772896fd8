package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// PlacementSpec configures on which nodes the pods of an operand run, and the metadata and resources of the pods.
type PlacementSpec struct {
	// Tolerations replaces daemonsets.tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:XValidation:rule="(has(self.key) && self.key != \"\") || (has(self.operator) && self.operator == 'Exists')",fieldPath=".operator",message="must be Exists if key is empty"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.value) || self.value == \"\" || !has(self.operator) || self.operator != 'Exists'",fieldPath=".value",message="must be empty if operator is Exists"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",fieldPath=".effect",message="must be NoExecute if tolerationSeconds is set"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// NodeSelector selects the GPU nodes for this operand. It replaces daemonsets.nodeSelector.
	//
	// A node that is no longer selected keeps its driver. Its status shows the command that removes it.
	// +optional
	NodeSelector Labels `json:"nodeSelector,omitempty"`
	// Labels adds to or overrides daemonsets.labels.
	//
	// They are set on the DaemonSets and pods. Labels that the operator sets itself cannot be changed.
	// +optional
	Labels Labels `json:"labels,omitempty"`
	// Annotations adds to or overrides daemonsets.annotations.
	//
	// They are set on the DaemonSets and pods; dcgmExporter.annotations on the pods only.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
	// PriorityClassName replaces daemonsets.priorityClassName.
	// +optional
	PriorityClassName ObjectName `json:"priorityClassName,omitempty"`
	// ContainerResources replaces resources for single containers.
	//
	// Init containers are included.
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
