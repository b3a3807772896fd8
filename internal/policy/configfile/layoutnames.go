package configfile

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
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
		yamlnode.EachPair(document.Content[0], func(key string, value *yaml.Node) {
			if key == "mig-configs" {
				block = yamlnode.Target(value)
			}
		})
	}
	if block != nil && block.Kind != yaml.MappingNode && block.Tag != "!!null" {
		return nil, "cannot be read: mig-configs must be a mapping of names"
	}
	found := sets.New[string]()
	yamlnode.EachPair(block, func(key string, _ *yaml.Node) { found.Insert(key) })
	if len(found) == 0 {
		return nil, "has no layouts: add mig-configs with the name of each layout"
	}
	return sets.List(found), ""
}
