// gpu-node-cuda adds two vectors on every GPU that is visible to it, through libcuda.so.1, and checks
// the numbers. gpu-node validate cuda runs it; it is a program of its own because libcuda.so.1 needs
// a C library, and gpu-node has none. It is built without a C compiler and finds the C library, and
// libcuda.so.1, when it runs.
//
// It exits with 0 and one line for each GPU on the standard output if all add rightly or are in use
// by others, with 1 and one sentence on the standard error if not, and with 2 if it was called
// wrongly. It sets no limit to its own time: its caller does.
package main
