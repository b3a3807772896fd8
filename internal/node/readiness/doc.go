// Package readiness owns verdicts: it derives the verdict of a live object (Node, DaemonSet, Pod), and the first stage
// that a node has not reached. It also has the verdict on a pod that is not there: which taint of the node the
// DaemonSet does not tolerate, by the rules of the DaemonSet controller.
//
// Its functions are pure. They depend on Kubernetes types and on the reasons in package api/v1, and must not depend on
// any operand. Package assess combines their verdicts into the assessment of a node.
package readiness
