package yamlnode

import (
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"
)

// maxNodes bounds a file whose aliases are expanded: an alias may repeat others, or itself.
const maxNodes = 10_000

// HasAlias reports whether a node has a reference to another one below it.
func HasAlias(node *yaml.Node) bool {
	return node != nil && (node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, HasAlias))
}

// Expanded returns a copy of a node with what its aliases stand for, and with merged keys; nil if that has too many
// nodes.
func Expanded(node *yaml.Node) *yaml.Node {
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
	for i := 0; i < len(content); i += 2 {
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
		if !HasKey(own, others[i].Value) {
			own = append(own, others[i], others[i+1])
		}
	}
	return own
}

// HasKey reports whether the keys and values of a mapping have a key.
func HasKey(content []*yaml.Node, key string) bool {
	for i := 0; i < len(content); i += 2 {
		if content[i].Value == key {
			return true
		}
	}
	return false
}

// Target returns what an alias stands for, or the node itself.
func Target(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// EachPair calls a function for each pair of a mapping, first for those that it merges, without expanding the values of
// aliases. For what is no mapping it calls none.
func EachPair(node *yaml.Node, each func(key string, value *yaml.Node)) {
	pairs(node, sets.New[*yaml.Node](), each)
}

// pairs is EachPair. seen has the mappings that have been visited: an alias may stand for what it is in.
func pairs(node *yaml.Node, seen sets.Set[*yaml.Node], each func(key string, value *yaml.Node)) {
	mapping := Target(node)
	if mapping == nil || mapping.Kind != yaml.MappingNode || seen.Has(mapping) {
		return
	}
	seen.Insert(mapping)
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Tag != "!!merge" {
			continue
		}
		merged := Target(mapping.Content[i+1])
		if merged.Kind != yaml.SequenceNode {
			pairs(merged, seen, each)
			continue
		}
		for _, one := range merged.Content {
			pairs(one, seen, each)
		}
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if key := mapping.Content[i]; key.Tag != "!!merge" {
			each(key.Value, mapping.Content[i+1])
		}
	}
}
