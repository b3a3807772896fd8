// Package operand defines what an operand is: data and pure functions, never a client. The Catalogue is a table of
// these; plan, render and readiness derive from it the order of application, the waits on the node, the node labels,
// the stages of a node and the pictures in the documentation. What describes nodes alone is in nodeinfo, and what only
// some operands share is in operands/internal.
package operand
