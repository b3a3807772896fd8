//go:build linux

package node_test

import (
	"fmt"
	"strings"
)

// hostStage is a part of TestAHostDriver.
type hostStage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Passed  bool    `json:"passed"`
	// NotRun is why it has shown nothing on this machine.
	NotRun string `json:"notRun,omitempty"`
	// Memory is the most that the whole scene had during it, with files that the kernel has read, in bytes; 0 if unknown.
	Memory int64 `json:"memory,omitempty"`
}

// hostResult is what TestAHostDriver has found, for those who run it on a machine that they do not keep.
type hostResult struct {
	// Played is set if the driver is a stand-in, and so shows nothing about GPUs.
	Played bool `json:"played"`
	// GPUs are the machine's, by nvidia-smi; Driver is the version of their driver.
	GPUs   []hostGPU `json:"gpus"`
	Driver string    `json:"driver"`
	// Stages are in their order. One that the test did not reach is missing.
	Stages []hostStage `json:"stages"`
	// Containers are those of the operator's namespace at the end of the stage in which the node is validated.
	Containers []hostContainer `json:"containers"`
	// Output is what pods of users printed, by their names.
	Output map[string]string `json:"output"`
	// AgentMemory is the resident memory of the health agent, in bytes.
	AgentMemory int64 `json:"agentMemory"`
	// Agent is the CPU time of the health agent, by the persistence mode of the GPUs.
	Agent []hostAgent `json:"agent,omitempty"`
}

// hostContainer is the time in which a container ran, in seconds from the creation of the policy. Ended is 0 for one
// that runs.
type hostContainer struct {
	App       string  `json:"app"`
	Container string  `json:"container"`
	Started   float64 `json:"started"`
	Ended     float64 `json:"ended,omitempty"`
	// Memory is the most that it had, with files that the kernel has read for it, in bytes; 0 if it ended unseen.
	Memory int64 `json:"memory,omitempty"`
}

// hostGPU is a GPU as nvidia-smi prints it on the machine itself.
type hostGPU struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// MIG and Persistence are its modes: Enabled, Disabled, or another text if it has none.
	MIG         string `json:"mig"`
	Persistence string `json:"persistence"`
}

// hostAgent is the CPU time that the health agent used in a time, with its programs.
type hostAgent struct {
	// Persistence is the persistence mode of the GPUs.
	Persistence string  `json:"persistence"`
	Seconds     float64 `json:"seconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
}

// costs is the text about times and memory.
func (r hostResult) costs() string {
	var text strings.Builder
	text.WriteString("Stages: seconds, and the most memory of the whole scene with cached files, in MiB\n")
	for _, stage := range r.Stages {
		fmt.Fprintf(&text, "%9.2f %9.1f  %s", stage.Seconds, mebibytes(stage.Memory), stage.Name)
		if stage.NotRun != "" {
			text.WriteString(": not run: " + stage.NotRun)
		}
		text.WriteString("\n")
	}
	text.WriteString("\nContainers until validated: seconds (from the start if it runs), most memory with cached files\n")
	for _, c := range r.Containers {
		end := "runs"
		if c.Ended > 0 {
			end = fmt.Sprintf("%.2f", c.Ended-c.Started)
		}
		fmt.Fprintf(&text, "%9s %9.1f  %s of %s\n", end, mebibytes(c.Memory), c.Container, c.App)
	}
	if r.AgentMemory > 0 {
		fmt.Fprintf(&text, "\nHealth agent: resident %.1f MiB\n", mebibytes(r.AgentMemory))
	}
	for _, agent := range r.Agent {
		fmt.Fprintf(&text, "  persistence mode %s: %.3f s of CPU time in %.0f s\n", agent.Persistence, agent.CPUSeconds,
			agent.Seconds)
	}
	return text.String()
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
