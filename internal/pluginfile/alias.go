package pluginfile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds a configuration whose aliases are expanded: an alias may repeat others, or itself.
const maxNodes = 10_000

// hasAlias reports whether a node has a reference to another one below it.
func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// expanded returns a copy of a node with what its aliases stand for, and with merged keys; nil if that has too many
// nodes.
func expanded(node *yaml.Node) *yaml.Node {
	e := expander{left: maxNodes}
	if node = e.expand(node); e.left < 0 {
		return nil
	}
	return node
}

// expander expands at most a number of nodes.
type expander struct{ left int }

func (e *expander) expand(node *yaml.Node) *yaml.Node {
	if e.left--; e.left < 0 {
		return node
	}
	if node.Kind == yaml.AliasNode {
		return e.expand(node.Alias)
	}
	expanded := *node
	expanded.Content = nil
	for _, child := range node.Content {
		expanded.Content = append(expanded.Content, e.expand(child))
	}
	if node.Kind == yaml.MappingNode {
		expanded.Content = merged(expanded.Content)
	}
	return &expanded
}

// merged returns the keys and values of a mapping with those of the mappings that its key << has. The first one of a
// key counts, and the mapping's own before them.
func merged(content []*yaml.Node) []*yaml.Node {
	var own, others []*yaml.Node
	for i := 0; i+1 < len(content); i += 2 {
		key, value := content[i], content[i+1]
		switch {
		case key.Tag != "!!merge":
			own = append(own, key, value)
		case value.Kind == yaml.SequenceNode:
			for _, one := range value.Content {
				others = append(others, one.Content...)
			}
		default:
			others = append(others, value.Content...)
		}
	}
	for i := 0; i+1 < len(others); i += 2 {
		if !hasKey(own, others[i].Value) {
			own = append(own, others[i], others[i+1])
		}
	}
	return own
}

// hasKey reports whether the keys and values of a mapping have a key.
func hasKey(content []*yaml.Node, key string) bool {
	for i := 0; i < len(content); i += 2 {
		if content[i].Value == key {
			return true
		}
	}
	return false
}
