// Package node runs one real node without a virtual machine, a container engine or an image registry:
// containerd, runc and a kubelet, which join the control plane of package cluster beside simulated
// nodes. It needs root on Linux with cgroup v1; Available says what is missing.
//
// Main puts the calling program, and with it the control plane, into a network of its own (a network
// namespace). The machine in it is a process tree with its own process ids, mounts, root file system,
// host name and cgroups. The only things outside the namespaces are
//
//   - the folder of the run, below the folder for temporary files: the machine's root file system;
//   - one cgroup of the folder's name in each hierarchy.
//
// The kernel ends the namespaces with the program, however it ends: processes, mounts and network
// interfaces with them. A watcher, a process that outlives the program for that, then removes the
// folder and the cgroups; what it could not do the next run does. The kernel itself is shared: the
// settings that a kubelet makes for the whole kernel are hidden from it behind files that already have
// its values.
//
// What it cannot show: kernel modules and GPUs. Files stand in for what the kernel would tell of them,
// see Machine.
package node
