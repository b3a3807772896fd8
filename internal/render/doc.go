// Package render is pure: it turns a step of the plan and the operand's assets into typed objects.
// What all operands have in common is added here, once: owner, labels, scheduling, update strategy,
// pull secrets, the wait for what comes first on the node.
package render
