// Package readiness is pure: from a live object it computes a verdict, one file per kind, and from
// a node and the pods on it how far up the ladder the node is. It knows Kubernetes' types, the
// reasons that the API documents, and no operand.
package readiness
