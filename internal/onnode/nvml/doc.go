// Package nvml is what a session with NVIDIA's management library (NVML) finds: the format in which the program that
// has opened the library hands it to the health agent, and the meaning of the library's return codes. It is pure.
package nvml
