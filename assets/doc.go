// Package assets holds the manifests of the operands, one folder each, as templates that only
// insert values. What a file shows is what is applied; what all DaemonSets have in common (owner,
// scheduling, tolerations, waits for other operands) is added by package render.
//
// The names of files that the operator applies start with a number, which is their order. The file install.yaml is
// installed with the operator instead: it holds the operand's ServiceAccount and rights, so that the operator need not
// hold what they grant. make manifests copies it to config/rbac/operands. The ServiceAccounts have the names of NVIDIA's
// operator, which neighbours know; cluster-scoped names start with gpu-operator-, so that none collides with an object
// that NVIDIA's operator left in the cluster.
package assets

import "embed"

// FS holds the folders of all operands.
//
//go:embed */[0-9]*.yaml
var FS embed.FS
