package pluginfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
)

// nullTag is that of a key without value.
const nullTag = "!!null"

// parsed returns the mapping of a configuration in its canonical form, nil if it is none.
func parsed(data []byte) *yaml.Node {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) != nil {
		return nil
	}
	root := yamlnode.Root(&document)
	if root == nil || root.Kind != yaml.MappingNode {
		return nil
	}
	if yamlnode.HasAlias(root) {
		if root = yamlnode.Expanded(root); root == nil {
			return nil
		}
	}
	canonical(root)
	return root
}

// withoutValue returns the value of a key of a mapping if it is null, nil otherwise.
func withoutValue(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key && mapping.Content[i+1].Tag == nullTag {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// canonical changes a tree without aliases to what the plugin takes from it: of a key that a mapping has twice it reads
// the last one, and it reads the names of the format's own keys in any case.
func canonical(root *yaml.Node) {
	lastOnes(root)
	if root.Kind != yaml.MappingNode {
		return
	}
	spell(root, topKeys)
	others := []block{{path: "sharing", keys: sharingBlocks}, {path: "resources", keys: lists}}
	for _, b := range append(blocks(), others...) {
		if mapping := at(root, b.path); mapping != nil && mapping.Kind == yaml.MappingNode {
			known := make([]string, 0, len(b.keys))
			for name := range b.keys {
				known = append(known, name)
			}
			spell(mapping, known)
		}
	}
}

// spell writes the keys of a mapping as the format does, and removes all but the last of each.
func spell(mapping *yaml.Node, known []string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		same := func(name string) bool { return strings.EqualFold(name, key.Value) }
		if at := slices.IndexFunc(known, same); at >= 0 && !slices.Contains(known, key.Value) {
			key.Value = known[at]
		}
	}
	lastOnes(mapping)
}

// lastOnes removes all but the last of each key in mappings.
func lastOnes(node *yaml.Node) {
	for _, child := range node.Content {
		lastOnes(child)
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	var kept []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if !yamlnode.HasKey(node.Content[i+2:], node.Content[i].Value) {
			kept = append(kept, node.Content[i], node.Content[i+1])
		}
	}
	node.Content = kept
}
