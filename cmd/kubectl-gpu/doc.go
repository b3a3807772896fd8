// Command kubectl-gpu is a plugin of kubectl: it answers questions about the GPU stack, without a cluster where that is
// possible, and removes the stack where the operator is gone. It reaches a cluster only by running kubectl, so that it
// needs no other configuration: kubectl proxy for commands that ask much. Only cleanup and migrate write.
package main
