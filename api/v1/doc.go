// Package v1 is the ClusterPolicy API, nvidia.com/v1: the types, their validation rules as markers, and the condition
// types and reasons that users see. It has no defaults: those are code of internal/policy and the operands,
// so that a stored spec is never changed.
//
// The first paragraph of a field's comment is its description in the CRD, so it must be short: what the field does, its
// unit and its default. Further paragraphs appear in docs/api.md only.
//
// +kubebuilder:object:generate=true
// +groupName=nvidia.com
package v1
