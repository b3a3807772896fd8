package v1

// RemovalSpec configures how the stack is taken off the nodes once the policy is deleted.
type RemovalSpec struct {
	// Force takes the stack off nodes whose GPUs are in use, too. Default false.
	//
	// If false, such a node keeps its stack until no pod uses its GPUs, and the policy remains until then. If true, these
	// pods lose their GPUs; the operator evicts none of them. It can be set while the policy is being deleted.
	// +optional
	Force *bool `json:"force,omitempty"`
}

// Reasons while a deleted policy is being removed from the cluster.
const (
	// ReasonRemoving: the policy is deleted, and the stack is being taken off the nodes.
	// Cause: the ClusterPolicy was deleted. The operands of each node are removed in the reverse order of their start,
	// then what they have left on the host, then the labels.
	// Remedy: none needed; the message names the nodes that are left, and what they wait for.
	ReasonRemoving = "Removing"
	// ReasonRemovalHeld: the policy is deleted, and the node keeps the stack because pods use its GPUs.
	// Cause: the pods that the message names.
	// Remedy: end these pods, and cordon the node so that no others follow; or set spec.removal.force to true, which
	// removes the stack while they run.
	ReasonRemovalHeld = "RemovalHeld"
	// ReasonRemovalFailed: the policy is deleted, and something of the stack cannot be taken off the node.
	// Cause: the error in the message, of the pod that cleans up the host or of the API server.
	// Remedy: fix that error, after which the removal goes on; or set spec.removal.force to true, which releases the node
	// without cleaning up its host.
	ReasonRemovalFailed = "RemovalFailed"
	// ReasonNotCleanedUp: the policy is deleted, and the node was released without cleaning up its host.
	// Cause: its kubelet has not reported for 5 minutes, or the clean-up failed and spec.removal.force is true.
	// Remedy: once the node is back, restart it, and remove the files that the message names.
	ReasonNotCleanedUp = "NotCleanedUp"
)
