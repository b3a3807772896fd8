// Package node reconciles one node at a time: its labels, which select it for the operands' DaemonSets, its start-up
// taints, its condition nvidia.com/GPUReady, and its entry in the fleet, of which it is the only writer. All of these
// follow from one assessment. It runs beside the pass, which publishes the Basis and reads the entries; it must not
// write objects of the stack.
package node

// Users' pods on a node that is about to be released, or to get another MIG layout: listed at each check, never
// watched. Listing the operands' pods needs the same permission.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods,verbs=delete

// Pods that the kubelet refused after a boot: the eviction of a pod that has ended deletes it, whatever the budgets.
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// Labels, annotations and the condition of a node.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
