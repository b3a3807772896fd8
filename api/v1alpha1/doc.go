// Package v1alpha1 is the NVIDIADriver API, nvidia.com/v1alpha1: the types and their validation rules as markers.
// Blocks that ClusterPolicy has with the same fields are types of package v1. As there, the schema has no defaults:
// package nvidiadriver has them, so that a stored spec is never changed.
//
// +kubebuilder:object:generate=true
// +groupName=nvidia.com
package v1alpha1
