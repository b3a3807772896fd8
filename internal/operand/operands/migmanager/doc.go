// Package migmanager is the operand that partitions the GPUs of a node into MIG devices, as the node's label
// nvidia.com/mig.config requests.
package migmanager
