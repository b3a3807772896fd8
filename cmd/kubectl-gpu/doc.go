// Command kubectl-gpu is a plugin of kubectl: it answers questions about the GPU stack, without a cluster where that is
// possible. It reaches a cluster only by running kubectl, so that it needs no other configuration, and writes nothing.
package main
