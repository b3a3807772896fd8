// Package startuptaint computes the start-up taints of a node: which are removed once its GPUs can be used, and which
// are added again after a failure. It is pure: the controller of nodes chooses when (startup.go), and writes the
// taints.
package startuptaint
