// Package healthaction taints and cordons nodes that have an unhealthy GPU, as spec.health.actions requires, and undoes
// it. Each pass reads all nodes, plans with package internal/health/healthaction, and carries out the plan. All
// state is on the Nodes, so a pass may end after any call. Nothing is evicted.
package healthaction

// The taint, the cordon and the record of a node.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
