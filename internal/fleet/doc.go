// Package fleet is what the two controllers share. Its entries hold what is known of each node: its facts, the verdict on
// it, and the version of what it was assessed by. The node controller is the only writer of entries; the pass aggregates
// them. The Basis is what nodes are assessed by: the decisions of the spec, and the DaemonSets of the stack. The pass
// publishes it.
package fleet
