// Package plan is pure. Decide computes what the spec and the objects that it refers to decide for every node; from
// these Decisions follow the labels of one node and the ladder that it climbs. Compute adds the nodes of the cluster:
// what a pass does, as steps in order, each with its reason.
package plan
