// gpu-node is the operator's on-node program. It waits for operands, validates them and checks them again, and starts
// NVIDIA's programs with the driver's environment. It discovers the node, exports its metrics, watches its GPUs,
// configures the device plugin, and cleans up. It is one static binary, since it also runs inside images that have
// neither a shell nor a C library.
//
// It exits with 0 on success, with 1 and one sentence in the log and in the termination message if it failed, timed
// out or was terminated, and with 2 on wrong usage. The check of a node that has lost n GPUs exits with 64 + n.
package main
