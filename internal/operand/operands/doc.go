// Package operands owns the catalogue: the list of all operands that the operator can install, each in a package of its
// own. It decides nothing itself; package plan uses the catalogue in every pass.
package operands
