// Package plan is pure. Decide computes what the spec and the objects that it refers to decide for every node; from
// these Decisions follow the labels of one node and the ladder that it climbs. Compute adds the facts of all nodes, and
// returns the Plan of a pass: its steps in order, each with its instances or with the reason why it applies none.
package plan
