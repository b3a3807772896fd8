// Package history records the history of a cluster, independently of the operator: every stored revision of the kinds
// that the invariants concern, in the order of their resourceVersions. All kinds are in one etcd, so that this is the
// order of the writes.
package history
