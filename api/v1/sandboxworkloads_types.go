package v1

// Workload is what the GPUs of a node are used for, as set by the node label nvidia.com/gpu.workload.config.
// +kubebuilder:validation:Enum="";container;vm-passthrough;vm-vgpu
type Workload string

// The workloads of a node.
const (
	// WorkloadContainer: the GPUs are for containers.
	WorkloadContainer Workload = "container"
	// WorkloadVMPassthrough: whole GPUs are for virtual machines.
	WorkloadVMPassthrough Workload = "vm-passthrough"
	// WorkloadVMVGPU: vGPU devices are for virtual machines.
	WorkloadVMVGPU Workload = "vm-vgpu"
)

// SandboxMode is the software that runs the virtual machines.
// +kubebuilder:validation:Enum="";kubevirt;kata
type SandboxMode string

// The modes of sandbox workloads.
const (
	SandboxKubeVirt SandboxMode = "kubevirt"
	SandboxKata     SandboxMode = "kata"
)

// SandboxWorkloadsSpec configures nodes whose GPUs are for virtual machines.
type SandboxWorkloadsSpec struct {
	// Enabled serves each node for the workload in its label nvidia.com/gpu.workload.config. Not supported yet. Default
	// false.
	//
	// If false, every node is served for containers, whatever its label, and the blocks of the operands for virtual
	// machines have no effect. If true, nodes for virtual machines get no operands and have the reason NotSupportedYet.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// DefaultWorkload of nodes without the label, or with an unknown value. Default container.
	// +optional
	DefaultWorkload Workload `json:"defaultWorkload,omitempty"`
	// Mode is what runs the virtual machines on nodes for vm-passthrough. Default kubevirt.
	// +optional
	Mode SandboxMode `json:"mode,omitempty"`
}
