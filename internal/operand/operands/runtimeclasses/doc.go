// Package runtimeclasses is the operand that creates the RuntimeClasses with which pods request NVIDIA's runtime. It
// has no pods.
package runtimeclasses
