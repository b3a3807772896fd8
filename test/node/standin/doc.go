// Stand-in plays what runs on a real node of the tests besides the operator's own programs: what NVIDIA's
// images do at the points that others depend on, and the parts of the machine that stand for its GPUs. It
// is one static program that plays the part by whose name it is started.
//
// There is no GPU and no kernel module. What the kernel would tell of them is in files, which the machine
// shows every container in place of the kernel's: see hardware.go. A GPU is there for a container if its
// device node is.
//
// A test gives a part orders by a file: see orders.go.
package main
