package v1

// Workload is what the GPUs of a node are for, as the label nvidia.com/gpu.workload.config has it.
// +kubebuilder:validation:Enum="";container;vm-passthrough;vm-vgpu
type Workload string

// The workloads of a node.
const (
	// WorkloadContainer: containers get the GPUs.
	WorkloadContainer Workload = "container"
	// WorkloadVMPassthrough: virtual machines get whole GPUs.
	WorkloadVMPassthrough Workload = "vm-passthrough"
	// WorkloadVMVGPU: virtual machines get vGPU devices.
	WorkloadVMVGPU Workload = "vm-vgpu"
)

// SandboxMode is what runs the virtual machines.
// +kubebuilder:validation:Enum="";kubevirt;kata
type SandboxMode string

// The modes of sandbox workloads.
const (
	SandboxKubeVirt SandboxMode = "kubevirt"
	SandboxKata     SandboxMode = "kata"
)

// SandboxWorkloadsSpec configures nodes whose GPUs are for virtual machines.
type SandboxWorkloadsSpec struct {
	// Enabled serves each node for the workload that its label nvidia.com/gpu.workload.config names.
	// Default false: every node is served for containers, whatever its label, and the blocks of the
	// operands for virtual machines have no effect. Virtual machines are not supported yet: their nodes
	// get no operands and are reported with the reason NotSupportedYet.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// DefaultWorkload is that of nodes without the label, or with an unknown value. Default container.
	// +optional
	DefaultWorkload Workload `json:"defaultWorkload,omitempty"`
	// Mode is what runs the virtual machines on nodes for vm-passthrough. Default kubevirt.
	// +optional
	Mode SandboxMode `json:"mode,omitempty"`
}
