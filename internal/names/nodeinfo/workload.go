package nodeinfo

import v1 "github.com/clusterpolicy/gpu-operator/api/v1"

// Workload is what the GPUs of a node are used by.
type Workload string

// WorkloadContainer is for nodes whose GPUs are used by containers.
const WorkloadContainer Workload = "container"

// The workloads of nodes whose GPUs are assigned to virtual machines, whole or in parts.
const (
	WorkloadVMPassthrough = Workload(v1.WorkloadVMPassthrough)
	WorkloadVMVGPU        = Workload(v1.WorkloadVMVGPU)
)

// Workloads returns all workloads.
func Workloads() []Workload {
	return []Workload{WorkloadContainer, WorkloadVMPassthrough, WorkloadVMVGPU}
}
