// Package nodeinfo describes GPU nodes: the facts read from a Node, and what follows from them alone, which is the
// driver pool, the layout of the container runtime and the workload of the node. It depends on no operand and no spec,
// and uses no client: package observe fills in the facts, and packages operand and plan decide by them.
package nodeinfo
