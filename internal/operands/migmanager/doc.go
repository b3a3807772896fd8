// Package migmanager is the operand that cuts the GPUs of a node into MIG devices, as the node's label
// nvidia.com/mig.config says.
package migmanager
