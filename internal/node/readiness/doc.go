// Package readiness owns verdicts: it derives the verdict of a live object (Node, DaemonSet, Pod), and the first stage
// that a node has not reached.
//
// Its functions are pure. They depend on Kubernetes types and on the reasons in package api/v1, and must not depend on
// any operand. Package assess combines their verdicts into the assessment of a node.
package readiness
