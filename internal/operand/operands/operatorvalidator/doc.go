// Package operatorvalidator is the operand that validates on each node that the stack works, and writes the markers
// that the other operands wait for.
package operatorvalidator
