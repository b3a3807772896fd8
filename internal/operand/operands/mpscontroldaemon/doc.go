// Package mpscontroldaemon is the operand that runs the control daemon of CUDA's Multi-Process Service (MPS) on nodes
// whose device plugin configuration shares GPUs by MPS.
package mpscontroldaemon
