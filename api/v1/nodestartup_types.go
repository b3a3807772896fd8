package v1

import corev1 "k8s.io/api/core/v1"

// OnFailure is what becomes of a node whose GPUs could be used and have failed.
// +kubebuilder:validation:Enum="";report;taint
type OnFailure string

// The choices of nodeStartup.onFailure.
const (
	// OnFailureReport: it is told, and pods are scheduled there as before.
	OnFailureReport OnFailure = "report"
	// OnFailureTaint: the start-up taints with the effect NoSchedule come back.
	OnFailureTaint OnFailure = "taint"
)

// NodeStartupSpec keeps pods off GPU nodes until the GPUs there can be used.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onFailure) || self.onFailure != 'taint' || has(self.taints) && self.taints.exists(t, t.effect == 'NoSchedule')",fieldPath=".onFailure",message="taint needs a start-up taint with the effect NoSchedule, which evicts nobody: add one to taints, or set report"
type NodeStartupSpec struct {
	// Taints are those that nodes are created with, such as by Karpenter's startupTaints, by the cluster
	// autoscaler's prefix startup-taint.cluster-autoscaler.kubernetes.io/, or by the kubelet's
	// --register-with-taints. Every pod of the stack tolerates them, and the operator takes them off a GPU node
	// once its GPUs are allocatable and validated. The admission policy gpu-operator-operator must name their
	// keys: nvidia.com/gpu-operator.not-ready is there, the chart adds the others. Default none.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=16
	Taints []StartupTaint `json:"taints,omitempty"`
	// OnFailure: report tells of a node whose GPUs fail; taint also puts the taints with the effect NoSchedule
	// back, once it has failed and has not been ready for 2 minutes, until it is ready again. No pod is
	// evicted. Default report.
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// StartupTaint is a taint that is on a node until its GPUs can be used.
type StartupTaint struct {
	// Key of the taint. Those of Kubernetes itself and of Karpenter are refused, as they are taken off by those
	// who set them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$')",message="must be the key of a taint, such as example.com/gpu-starting"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(node|node-role|node[.]cloudprovider)[.]kubernetes[.]io/|^karpenter[.]sh/')",message="is taken off by who sets it: name a taint of your own"
	Key string `json:"key"`
	// Value of the taint. Empty is any.
	// +optional
	Value LabelValue `json:"value,omitempty"`
	// Effect of the taint.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}
