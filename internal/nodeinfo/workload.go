package nodeinfo

import v1 "github.com/clusterpolicy/gpu-operator/api/v1"

// Workload is the kind of work that a GPU node serves.
type Workload string

// WorkloadContainer is a node whose GPUs are used by containers.
const WorkloadContainer Workload = "container"

// The workloads of nodes whose GPUs are lent to virtual machines, whole or in parts.
const (
	WorkloadVMPassthrough = Workload(v1.WorkloadVMPassthrough)
	WorkloadVMVGPU        = Workload(v1.WorkloadVMVGPU)
)
