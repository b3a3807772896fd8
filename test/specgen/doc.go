// Package specgen knows the fields of a ClusterPolicy's spec from the definition that the API server uses:
// which there are, what values each takes, and random specs of them. Tests use it to show of every field
// that it does something, and that no combination breaks the operator.
package specgen
