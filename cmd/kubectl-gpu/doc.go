// Command kubectl-gpu is a plugin of kubectl: it answers questions about the GPU stack, without a cluster
// where that is possible.
package main
