// Package health is the health agent of a node. It reads the errors of GPUs and NVSwitches from the kernel log, keeps
// which devices are unhealthy, and reports them in an annotation of its own Node and as metrics. It opens no GPU: it
// holds nothing that a reset, a change of the MIG mode or a driver upgrade would wait for.
//
// kmsg.go reads the kernel log, state.go decides what follows from its records, agent.go writes the annotation,
// metrics.go serves the metrics, uuid.go finds the names of GPUs.
package health
