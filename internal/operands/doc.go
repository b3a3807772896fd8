// Package operands is the catalogue: the one list of what the operator can install.
package operands
