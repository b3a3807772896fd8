// Package conditions sets the conditions of a policy that follow neither from nodes nor from operands: what its fields,
// the CRD, the admission policies and another operator in the cluster mean for it. It is pure.
package conditions

// MaxMessage is the longest message of a condition, in bytes.
const MaxMessage = 1024
