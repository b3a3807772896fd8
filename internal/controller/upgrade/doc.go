// Package upgrade upgrades drivers, and changes MIG layouts in the same budgets. Each pass reads the nodes, plans
// with package internal/upgrade, and carries out the plan: it grants slots, patches Nodes, pulls images, evicts the
// pods of users and deletes outdated driver pods. All state is on the Nodes and in one ConfigMap, so a pass may end
// after any call.
//
// It writes no labels of the node controller, and nothing while the policy is paused, while NVIDIA's operator is at
// work, or to a node that is not assessed by the current Basis.
package upgrade

// State, cordon and record of a node.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch

// The pods of a node that is upgraded are listed without a cache, in all namespaces.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// Pods of users are only evicted, so that disruption budgets hold.
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// The devices of pods with resource claims; other claims than those for GPUs do not matter.
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get

// Pods that pull images, and outdated pods of drivers and of the validator.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods,verbs=create;delete

// The slots.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=configmaps,verbs=get;create;patch;delete
