// Package nodeinfo describes GPU nodes: the facts read from a Node, and what follows from them alone, which is the
// driver pool, the layout of the container runtime and the workload of the node. It tracks no operand and no spec.
package nodeinfo
