// Package node looks after one node at a time: its labels, by which the operands' DaemonSets select
// it, and its condition nvidia.com/GPUReady. An event of a node concerns that node's key only.
package node

// Labels and the annotation of a node, and its condition.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
