// Package yamlnode reads parsed YAML: the fields of mappings, and what aliases stand for, within bounds. It is pure.
package yamlnode
