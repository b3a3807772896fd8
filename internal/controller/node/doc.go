// Package node looks after one node at a time: its labels, by which the operands' DaemonSets select
// it, and its condition nvidia.com/GPUReady. An event of a node concerns that node's key only.
package node

// What pods of users there are on a node that is to be given up; read once, and never watched. The list of the
// operands' pods is a part of it.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// Labels and the annotation of a node, and its condition.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
