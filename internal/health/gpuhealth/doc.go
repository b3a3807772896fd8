// Package gpuhealth is the format in which the health agent of a node reports faults of GPUs, in an annotation of its
// Node: the agent encodes it, and the operator decodes it. It is pure, and small, as the on-node program has it.
package gpuhealth
