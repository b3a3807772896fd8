package v1

import corev1 "k8s.io/api/core/v1"

// OnFailure is what happens to a node whose GPUs were usable and have failed.
// +kubebuilder:validation:Enum="";report;taint
type OnFailure string

// The values of nodeStartup.onFailure.
const (
	// OnFailureReport only reports the failure; pods are scheduled to the node as before.
	OnFailureReport OnFailure = "report"
	// OnFailureTaint puts the start-up taints with the effect NoSchedule back on the node.
	OnFailureTaint OnFailure = "taint"
)

// NodeStartupSpec keeps pods off GPU nodes until their GPUs can be used.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onFailure) || self.onFailure != 'taint' || has(self.taints) && self.taints.exists(t, t.effect == 'NoSchedule')",fieldPath=".onFailure",message="the value taint needs a taint with the effect NoSchedule in taints: add one, or set report"
type NodeStartupSpec struct {
	// Taints that nodes are created with. The operator removes them once the GPUs are allocatable and validated. Default
	// none.
	//
	// Those with the effect NoSchedule come back when the node boots.
	//
	// Set the same taints in Karpenter's startupTaints, in the kubelet's --register-with-taints, or with the cluster
	// autoscaler's prefix startup-taint.cluster-autoscaler.kubernetes.io/. Every pod of the stack tolerates them. The
	// admission policy gpu-operator-operator must list their keys: it lists nvidia.com/gpu-operator.not-ready, and the
	// chart adds the others.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=16
	Taints []StartupTaint `json:"taints,omitempty"`
	// OnFailure is report (default) or taint, which puts the NoSchedule taints back on a node whose GPUs fail.
	//
	// report only shows the failure. taint acts once the node has failed and has not been ready for 2 minutes, until it is
	// ready again. No pod is evicted.
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// CleanFailedPods deletes GPU pods that the kubelet refused after a boot of their node. Default false.
	//
	// They have the reason UnexpectedAdmissionError and stay Failed for good. Only pods that a controller owns are
	// deleted, once the GPUs of the node can be used again; all are reported.
	// +optional
	CleanFailedPods *bool `json:"cleanFailedPods,omitempty"`
}

// StartupTaint is a taint that is on a node until its GPUs can be used.
type StartupTaint struct {
	// Key of the taint. It must not be one of Kubernetes itself or of Karpenter, which they remove themselves.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$')",message="must be a taint key, such as example.com/gpu-starting"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(node|node-role|node[.]cloudprovider)[.]kubernetes[.]io/|^karpenter[.]sh/')",message="is a taint of Kubernetes or Karpenter, which they remove themselves: use another key"
	Key string `json:"key"`
	// Value of the taint. Empty matches any value.
	// +optional
	Value LabelValue `json:"value,omitempty"`
	// Effect of the taint.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}
