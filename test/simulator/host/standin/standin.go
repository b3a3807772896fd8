// Package standin is what the simulator and the program that plays NVIDIA's parts agree on.
package standin

import "fmt"

// Names under which the program behaves in its own way.
const (
	SMI  = "nvidia-smi"
	CUDA = "gpu-node-cuda"
)

const (
	// PartSuffix follows the path of the program in that of the file that says how it behaves, a Part
	// in JSON. Without one it succeeds and finds no GPU.
	PartSuffix = ".json"
	// PipeDescriptor is the file descriptor on which a daemon sends its environment, separated by
	// NUL. It is inherited through gpu-node.
	PipeDescriptor = 3
	// DriverVersion is that of the simulated driver.
	DriverVersion = "580.95.05"
	// Product is the model of the simulated GPUs.
	Product = "NVIDIA H100 80GB HBM3"
)

// Part is how the program behaves.
type Part struct {
	// GPUs is how many it finds.
	GPUs int `json:"gpus"`
	// ExitCode other than 0 makes it fail.
	ExitCode int `json:"exitCode"`
}

// GPUUUID names a GPU.
func GPUUUID(index int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", index) }

// GPUAddress is where a GPU is on the PCI bus, as sysfs names it.
func GPUAddress(index int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+index) }
