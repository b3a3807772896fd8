// Package events writes the Events about nodes and policies: one for each transition, limited in rate. An Event that
// cannot be written is logged and dropped, as conditions and the status report the same. The package does not decide
// what is a transition; the controllers and package statuswriter do.
package events

// The API server requires Events about cluster-scoped objects to be in namespace default. The right is in a ClusterRole
// because a bundle of the Operator Lifecycle Manager cannot grant rights in a single other namespace. Events are never
// updated, so that create is enough.
// +kubebuilder:rbac:groups="",resources=events,verbs=create
