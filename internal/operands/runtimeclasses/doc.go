// Package runtimeclasses is the operand that creates the RuntimeClasses by which pods ask for
// NVIDIA's runtime. It has no pods of its own.
package runtimeclasses
