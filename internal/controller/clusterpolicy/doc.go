// Package clusterpolicy runs the pass, one reconcile of the whole cluster: read, decide, plan, render, publish, apply,
// status. It applies the active policy, publishes the basis that nodes are assessed by, and aggregates the entries of
// the fleet into the status.
//
// It assesses no node, reads no pods but those that keep the name of a DaemonSet in use and those of drivers to take
// over, and has no code for other operands. It writes only with packages apply and statuswriter.
//
// The comment of package controller lists the state between passes, and what losing it costs.
package clusterpolicy

// Permissions of the pass. Server-side apply needs the verbs create and patch; get is for objects that are not in the
// cache. The verb patch of policies is for the finalizer. In a Role, the resource namespaces is the namespace of the
// Role alone.
// +kubebuilder:rbac:groups=nvidia.com,resources=clusterpolicies,verbs=list;watch;patch
// +kubebuilder:rbac:groups=nvidia.com,resources=clusterpolicies/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=gpu-operator,resources=servicemonitors;prometheusrules,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=clusterpolicies.nvidia.com,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=nvidiadrivers.nvidia.com,verbs=get
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicybindings,resourceNames=gpu-operator-node-agents,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=namespaces,verbs=get;patch
// +kubebuilder:rbac:groups=apps,namespace=gpu-operator,resources=daemonsets,verbs=get;list;watch;create;patch;delete
