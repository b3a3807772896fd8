// Package node reconciles one node at a time: its labels, by which the operands' DaemonSets select it, its start-up
// taints, its condition nvidia.com/GPUReady, and its entry in the fleet, of which it is the only writer. Each reconcile
// assesses the node once; all of these follow from that. An event of a node or of a pod concerns that node's key only.
package node

// What pods of users there are on a node that is to be given up; read once, and never watched. The list of the
// operands' pods is a part of it.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// Labels and the annotation of a node, and its condition.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
