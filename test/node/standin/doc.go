// Stand-in plays what runs on a real node of the tests besides the operator's own programs: the behaviour of NVIDIA's
// images that others depend on, and the parts of the machine that replace its GPUs. It is one static program that plays
// the part by whose name it is started.
//
// There is no GPU and no kernel module. What the kernel would show of them is in files, which the machine mounts in
// every container in place of the kernel's: see hardware.go. A container has a GPU if it has its device node.
//
// A test gives a part orders in a file: see orders.go.
package main
