// Package events writes Events about nodes and policies: one for each transition, and of a fleet that breaks at
// once a bounded number. That an Event cannot be written changes nothing else: conditions and status tell all.
package events

// Events about objects in no namespace are in namespace default, by the rules of the API server. A ClusterRole
// gives the right, as those who install by the Operator Lifecycle Manager cannot give one in that namespace
// alone. No Event is counted up, so that create is enough.
// +kubebuilder:rbac:groups="",resources=events,verbs=create
