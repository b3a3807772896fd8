// Package nvmlread has one session with NVIDIA's management library (NVML): it opens the driver's own library, reads
// the state of the GPUs, and closes it. Each call may hang for as long as the driver does, and whatever the library
// holds keeps the driver from being unloaded. So this is for a process of its own, which ends.
package nvmlread
