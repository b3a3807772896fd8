// Package assets has the manifests of the operands, one folder each, as templates that insert values and repeat or
// leave out blocks.
// The files are:
//
//   - OPERAND/NUMBER_KIND.yaml are the objects of an operand, in the order in which they are applied.
//   - OPERAND/containers/NAME.yaml is an optional container NAME of its DaemonSet, see containerFile in package render.
//   - *.yaml are init containers that several operands share, in the same format: each is named after the container
//     that operand.Proof names.
//   - OPERAND/install.yaml is not a template. It has the operand's ServiceAccount and RBAC, which are installed with
//     the operator, so that the operator itself does not need the permissions that they grant. make manifests copies it
//     to config/rbac/operands. The ServiceAccounts have the names of NVIDIA's operator, to which other software refers;
//     cluster-scoped names start with gpu-operator-, to not collide with objects left by NVIDIA's operator.
//
// Package render adds what all objects have in common (namespace, owner), what all DaemonSets have in common
// (scheduling, tolerations, waits for other operands), what all ServiceMonitors have in common, and the optional
// settings that an operand decides in Go (operand.Instance.Additions). A template does no more than insert a value,
// repeat a block for a list, or include a block on a boolean: at most every fifth line has an action.
package assets

import "embed"

// FS has the templates.
//
//go:embed *.yaml */[0-9]*.yaml */containers/*.yaml
var FS embed.FS

// Patterns match all files of FS.
func Patterns() []string { return []string{"*.yaml", "*/[0-9]*.yaml", "*/containers/*.yaml"} }
