// Package nvidia runs NVIDIA's own programs, in the versions that the modules below it pin, against what this project
// plays below them: the driver's libraries of package fakegpu, the files of the kernel's driver, and the kubelet.
//
// Each program is a process in a mount namespace of its own, where the files of the played machine are over those of
// this one; so it needs root on Linux. There is neither a container nor an API server: package node has those.
package nvidia
