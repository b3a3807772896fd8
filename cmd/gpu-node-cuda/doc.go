// gpu-node-cuda adds two vectors on every GPU that is visible to it, through libcuda.so.1, and checks the result.
// gpu-node validate cuda runs it; it is a program of its own because libcuda.so.1 needs a C library, and gpu-node has
// none. It is built without a C compiler and loads the C library, and libcuda.so.1, at run time.
//
// gpu-node-cuda nvml has one session with NVML and writes what it finds to the standard output, in JSON, for gpu-node
// health. With --root it does so in the root file system of a driver.
//
// Otherwise it exits with 0 and one line for each GPU on the standard output if all give correct results or are in use
// by other processes, with 1 and one sentence on the standard error if not, and with 2 on wrong usage. It has no time
// limit of its own: its caller sets one.
package main
