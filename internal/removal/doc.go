// Package removal plans how the stack of a deleted policy is taken off one node. It is pure: the node's labels, its
// pods, the pods that use its GPUs and the time in; the next step out. Package controller/node reads the input and
// carries out the step.
//
// A node loses its operands in the reverse order of the graph: the labels that select an operand are removed once no
// pod needs it any more. When no pod of the stack is left, a pod cleans up the host, and then the node is released. All
// state is on the node and its pods, so that a removal continues after a crash at any point.
//
// # Room
//
// The folder cleanup is what kubectl gpu cleanup does where the operator is gone: what is left of a stack in a
// cluster, and what removes it, in order.
package removal
