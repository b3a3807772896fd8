// Package plan computes what a spec means for the cluster and for each node, without side effects: it uses no client
// and no clock. Decide makes the Decisions that follow from the spec and the objects that it references; the labels and
// the stages of one node follow from them. Compute adds the facts of all nodes and returns the Plan of a pass: its
// steps in order, each with its instances or with the reason why it applies none.
package plan
