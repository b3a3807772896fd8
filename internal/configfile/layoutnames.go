package configfile

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// maxYAMLError bounds what is quoted of an error of the YAML parser, in bytes.
const maxYAMLError = 200

// MIGLayoutNames returns the names of the MIG layouts in a file of mig-parted, sorted; none, and why, if it has none.
// Only the names are decoded: each alias may stand for a large part of the file, so that decoding a file of 1 MB may
// take many GB.
func MIGLayoutNames(content string) (names []string, problem string) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(content), &document); err != nil {
		return nil, "cannot be read: " + text.Truncate(strings.Join(strings.Fields(err.Error()), " "), maxYAMLError)
	}
	var block *yaml.Node
	if len(document.Content) > 0 {
		pairs(document.Content[0], sets.New[*yaml.Node](), func(key string, value *yaml.Node) {
			if key == "mig-configs" {
				block = target(value)
			}
		})
	}
	if block != nil && block.Kind != yaml.MappingNode && block.Tag != "!!null" {
		return nil, "cannot be read: mig-configs must be a mapping of names"
	}
	found := sets.New[string]()
	pairs(block, sets.New[*yaml.Node](), func(key string, _ *yaml.Node) { found.Insert(key) })
	if len(found) == 0 {
		return nil, "has no layouts: add mig-configs with the name of each layout"
	}
	return sets.List(found), ""
}

// target returns what an alias stands for, or the node itself.
func target(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// pairs calls a function for each pair of a mapping, first for those that it merges. seen has the mappings that have
// been visited: an alias may stand for what it is in.
func pairs(node *yaml.Node, seen sets.Set[*yaml.Node], each func(key string, value *yaml.Node)) {
	mapping := target(node)
	if mapping == nil || mapping.Kind != yaml.MappingNode || seen.Has(mapping) {
		return
	}
	seen.Insert(mapping)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Tag != "!!merge" {
			continue
		}
		merged := target(mapping.Content[i+1])
		if merged.Kind != yaml.SequenceNode {
			pairs(merged, seen, each)
			continue
		}
		for _, one := range merged.Content {
			pairs(one, seen, each)
		}
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if key := mapping.Content[i]; key.Tag != "!!merge" {
			each(key.Value, mapping.Content[i+1])
		}
	}
}
