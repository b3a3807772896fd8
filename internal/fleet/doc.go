// Package fleet holds what is known of each node: its facts, the verdict on it, and what both were made of. The node
// controller is the only writer of entries, and the pass only aggregates them. The pass in turn publishes what nodes are
// assessed by: what the spec decides, and what the stack looks like.
package fleet
