// Package v1 is the ClusterPolicy API, nvidia.com/v1, and nothing else: types, validation rules as
// markers, and the condition types and reasons that users meet. It holds no defaults; those are
// Go code of internal/image and of the operands, so that a stored spec stays what its owner wrote.
//
// +kubebuilder:object:generate=true
// +groupName=nvidia.com
package v1
