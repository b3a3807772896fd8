// gpu-node is the on-node program of the operator: the init containers that wait for an operand on the same node, the
// validation that an operand works, the entrypoint that starts NVIDIA's programs with the driver's environment, node
// discovery, and the exporter of the node's metrics. It is one static binary, since it also runs inside images that
// have neither a shell nor a C library.
//
// It exits with 0 on success, with 1 and one sentence in the log and in the termination message if it failed, timed
// out or was terminated, and with 2 on wrong usage.
package main
