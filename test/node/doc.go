// Package node runs one real node without a virtual machine, a container engine or an image registry: containerd, runc
// and a kubelet, which join the control plane of package cluster together with simulated nodes. It needs root on Linux
// with cgroup v1; Available returns what is missing.
//
// Main puts the calling program, and with it the control plane, into a network namespace of its own. The machine in it
// is a process tree with its own process IDs, mounts, root file system, host name and cgroups. The only things outside
// the namespaces are
//
//   - the folder of the run, below the folder for temporary files: the machine's root file system;
//   - one cgroup of the folder's name in each hierarchy.
//
// The kernel ends the namespaces with the program, however it ends: processes, mounts and network interfaces with them.
// A watcher, a process that outlives the program for this purpose, then removes the folder and the cgroups; what it
// could not remove the next run does. The kernel itself is shared: the settings that a kubelet makes for the whole
// kernel are hidden from it behind files that already have its values.
//
// There are no kernel modules and no GPUs. Files replace what the kernel would show of them, see Machine.
package node
