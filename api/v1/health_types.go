package v1

import "k8s.io/apimachinery/pkg/util/intstr"

// HealthSpec configures which losses of GPUs a node may have and still be ready.
type HealthSpec struct {
	// MinUsable is how many GPUs of a node must be usable: a number, or a percentage from 0% to 100%. Default 100%.
	//
	// A node with fewer usable GPUs is not ready, but keeps its operands, and neither driver upgrades nor start-up taints
	// wait for it. A node that has fewer GPUs than the number needs all of them. Percentages are rounded up. The status
	// reports each loss, whatever this value.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int || self.matches('^([0-9]+|([0-9]{1,2}|100)%)?$')",message="must be a number, or a percentage of 0% to 100%"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must not be negative"
	MinUsable *intstr.IntOrString `json:"minUsable,omitempty"`
}

// NodeGPUs counts the GPUs of a node, or of all nodes.
type NodeGPUs struct {
	// Total is how many GPUs there are.
	Total int32 `json:"total"`
	// Usable is how many of them the kubelet can give to pods.
	Usable int32 `json:"usable"`
}

// Reasons of a node that has lost GPUs. Such a node is ready if it has as many usable GPUs as spec.health.minUsable
// requires.
const (
	// ReasonGPUsUnhealthy: the node advertises more GPUs than the kubelet can give to pods.
	// Cause: the device plugin has found some of them unhealthy, for example after an Xid error. It does not notice that
	// one has recovered.
	// Remedy: read the log of the node's nvidia-device-plugin-daemonset pod and the kernel log of the node. Reset the GPU
	// or reboot the node, then restart that pod.
	ReasonGPUsUnhealthy = "GPUsUnhealthy"
	// ReasonGPUsMissing: the driver does not see all GPUs that it is bound to on the PCI bus.
	// Cause: a GPU has fallen off the bus (Xid 79), or the driver could not initialize it.
	// Remedy: read the kernel log of the node and reboot it; if the GPU stays away, it or its power or riser is
	// defective.
	ReasonGPUsMissing = "GPUsMissing"
)

// ReasonPluginConfigInvalid: a configuration of the device plugin cannot be used; pods that run are left as they are.
// Cause: its ConfigMap, or the label nvidia.com/device-plugin.config of the node, as the message describes, with the
// line. Remedy: correct the ConfigMap or the label, or use spec.sharing, which has no such traps.
const ReasonPluginConfigInvalid = "PluginConfigInvalid"

// Reasons of a node whose MIG layout, the label nvidia.com/mig.config, is not what its GPUs have.
const (
	// ReasonMIGConfigPending: the MIG manager changes the MIG layout of the node, and pauses the operands meanwhile.
	// Cause: the label nvidia.com/mig.config has changed, or the node has booted. The message says if the label or the MIG
	// manager is gone meanwhile.
	// Remedy: wait. If the deadline has passed (spec.deadlines.devicePlugin), the operands of the node are started again;
	// read the log of its nvidia-mig-manager pod.
	ReasonMIGConfigPending = "MIGConfigPending"
	// ReasonMIGConfigFailed: the MIG manager could not apply the MIG layout of the node.
	// Cause: the layout is unknown or does not fit the GPUs, or pods use GPUs whose MIG mode has to change.
	// Remedy: read the log of the node's nvidia-mig-manager pod. End the pods that use GPUs, or set the label
	// nvidia.com/mig.config to another layout of the ConfigMap; setting it to all-disabled and back tries again.
	ReasonMIGConfigFailed = "MIGConfigFailed"
	// ReasonMIGConfigMismatch: the MIG manager has applied the MIG layout, but the node does not advertise its devices.
	// Cause: spec.mig.strategy is none or single where pods are to request resources such as nvidia.com/mig-1g.10gb,
	// which only mixed advertises; or the device plugin has not noticed the change.
	// Remedy: set spec.mig.strategy as the message describes, or restart the node's nvidia-device-plugin-daemonset pod.
	ReasonMIGConfigMismatch = "MIGConfigMismatch"
)
