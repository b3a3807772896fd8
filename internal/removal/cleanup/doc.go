// Package cleanup is pure: what is left of the stack in a cluster, and what removes it without the operator, in order.
// Command kubectl gpu cleanup reads the cluster and carries out the plan.
package cleanup
