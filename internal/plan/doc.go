// Package plan is pure: from the spec, the facts about the nodes and the catalogue it computes what
// is to be done, as steps in order, each with its reason; and for one node, its labels and the
// ladder that it climbs.
package plan
