// Package healthagent is the operand that reports faults of GPUs on each node: gpu-node health, which reads them from
// the kernel log and NVML, with its Service and its ServiceMonitor. It needs the admission policy that restricts what
// its pods may write to nodes.
package healthagent
