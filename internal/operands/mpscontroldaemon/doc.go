// Package mpscontroldaemon is the operand that runs the control daemon of CUDA's Multi-Process Service on
// the nodes whose configuration of the device plugin shares GPUs by it.
package mpscontroldaemon
