// Package policy has no code; its folders answer what the fields of a ClusterPolicy mean: defaults, references of
// images, fields without effect, the files of users that a policy refers to, and values that Go cannot decode. All are
// pure, but for the transport in undecodable.
//
// Every room above kube and names may import them.
//
// Begin with package effective: its Spec is the policy with all defaults, and the only form that operands accept.
package policy
