// Package neighbours is the controller that looks for what others run on GPU nodes and the operator runs, too. It lists
// pods now and then, and reports to the fleet what it has found; the node controller reports it.
package neighbours

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
