// Command kubectl-gpu is a plugin of kubectl: it answers questions about the GPU stack, without a cluster where that is
// possible, and removes the stack where the operator is gone. It reaches a cluster as kubectl does, by the user's
// kubeconfig. Only cleanup and migrate write.
package main
