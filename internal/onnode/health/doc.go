// Package health is the health agent of a node. It reads the errors of GPUs and NVSwitches from the kernel log, and the
// state of the GPUs from NVML, keeps which devices are unhealthy, and reports them in an annotation of its own Node and
// as metrics. It opens no GPU: each session with NVML is a program that ends, and there is none while someone else
// needs the GPUs. So it holds nothing that a reset, a change of the MIG mode or a driver upgrade would wait for.
//
// kmsg.go reads the kernel log, state.go decides what follows from its records, measured.go and driver.go what follows
// from NVML. session.go runs the program, gpus.go decides when, and pause.go when not. agent.go writes the annotation,
// metrics.go serves the metrics, uuid.go finds the names of GPUs.
package health
