// Package operand defines operands and their Catalogue: data and pure functions from the spec to decisions and
// instances. It never uses a client. plan, render and readiness derive from the Catalogue the order of application, the
// waits on the node, the node labels and the stages of a node. What depends on nodes alone is in nodeinfo, and what
// only some operands share is in operands/internal.
package operand
