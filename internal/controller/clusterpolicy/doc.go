// Package clusterpolicy is the pass: observe, plan, render, apply, status. It makes the cluster follow the policy in
// force, publishes what nodes are assessed by, and aggregates the entries of the fleet; it assesses no node and reads no
// pod. It writes through package apply and package status only, and knows no operand.
//
// What it keeps from pass to pass is in caches: the plan and the rendered objects, each with all that it was made of. The
// comment of package controller has the table of all that is kept.
package clusterpolicy

// What the pass reads and writes. The objects of the stack are made by server-side apply, which
// needs the verbs create and patch; get is for names that the cache does not hold. A right to namespaces in a
// namespaced role is one to that namespace alone.
// +kubebuilder:rbac:groups=nvidia.com,resources=clusterpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=nvidia.com,resources=clusterpolicies/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods,verbs=watch
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=gpu-operator,resources=servicemonitors;prometheusrules,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=clusterpolicies.nvidia.com,verbs=get
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicybindings,resourceNames=gpu-operator-node-discovery,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=namespaces,verbs=get;patch
// +kubebuilder:rbac:groups=apps,namespace=gpu-operator,resources=daemonsets,verbs=get;list;watch;create;patch;delete
