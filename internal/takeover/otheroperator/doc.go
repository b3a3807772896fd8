// Package otheroperator detects NVIDIA's operator at work in the cluster, beside which this one must not write: by its
// pods in any namespace, if these may write policies, and by what it writes on DaemonSets.
//
// It decides nothing but that: while a Watcher has a Finding, the pass writes nothing but the status of the
// policy and an Event.
package otheroperator

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=nvidia.com,resources=clusterpolicies,verbs=list
