// Package assets holds the manifests of the operands, one folder each, as templates that only
// insert values. What a file shows is what is applied; what all DaemonSets have in common (owner,
// scheduling, tolerations, waits for other operands) is added by package render.
package assets

import "embed"

// FS holds the folders of all operands.
//
//go:embed */*.yaml
var FS embed.FS
