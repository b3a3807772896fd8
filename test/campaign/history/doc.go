// Package history records what happened in a cluster, independently of the operator: every stored revision of the kinds
// that the invariants are about, in the order of their resourceVersions. All kinds are in one etcd, so that this is the
// order in which they happened.
package history
