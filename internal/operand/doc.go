// Package operand defines what an operand is: data and pure functions, never a client. The
// catalogue of operands is a table of these; plan, render and readiness derive from it the order
// of application, the waits on the node, the node labels, the ladder of a node and the pictures
// in the documentation.
package operand
