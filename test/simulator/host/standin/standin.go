// Package standin is the contract between the simulator and the stand-in for NVIDIA's programs.
package standin

import "fmt"

// Names under which the program has a special behaviour.
const (
	SMI  = "nvidia-smi"
	CUDA = "gpu-node-cuda"
)

const (
	// PartSuffix, appended to the path of the program, is the path of its configuration, a Part in JSON. Without one it
	// succeeds and finds no GPU.
	PartSuffix = ".json"
	// PipeDescriptor is the file descriptor on which a daemon sends its environment, separated by NUL. gpu-node passes
	// it on.
	PipeDescriptor = 3
	// DriverVersion is the version of the simulated driver.
	DriverVersion = "580.95.05"
	// Product is the model of the simulated GPUs.
	Product = "NVIDIA H100 80GB HBM3"
)

// Part is the behaviour of the program.
type Part struct {
	// GPUs is the number of GPUs that it finds.
	GPUs int `json:"gpus"`
	// ExitCode other than 0 makes it fail.
	ExitCode int `json:"exitCode"`
}

// Session is the first argument of CUDA for a session with the driver's management library.
const Session = "nvml"

// GPUUUID returns the UUID of a GPU.
func GPUUUID(index int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", index) }

// GPUAddress returns the PCI address of a GPU, in the format of sysfs.
func GPUAddress(index int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+index) }
