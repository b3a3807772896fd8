// Package gpuuse decides which pods use GPUs. It is pure: a pod and the claims that hold GPUs in, its use out.
//
// Everything that disturbs work on GPUs asks it: driver upgrades, changes of MIG layouts, the removal of the stack from
// a node, and the commands that preview these. A pod gets GPUs by an extended resource of the device plugin, by a
// resource claim (DRA), by an extended resource that a DeviceClass maps to a claim, or by its RuntimeClass.
package gpuuse
