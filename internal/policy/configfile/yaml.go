package configfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxProblems bounds what is returned for one file, and maxValue what is quoted of it, in bytes.
const (
	maxProblems = 4
	maxValue    = 64
)

// problems collects sentences, each with the line that it is about.
type problems []string

func (p *problems) add(at *yaml.Node, format string, args ...any) {
	*p = append(*p, fmt.Sprintf("line %d: ", at.Line)+fmt.Sprintf(format, args...))
}

// first returns the first few.
func (p *problems) first() []string { return (*p)[:min(len(*p), maxProblems)] }

// unknown adds the keys of a mapping that are none of these.
func (p *problems) unknown(mapping *yaml.Node, known ...string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if key := mapping.Content[i]; !slices.Contains(known, key.Value) {
			p.add(key, "key %s is unknown: use %s", text.Truncate(key.Value, maxValue), strings.Join(known, ", "))
		}
	}
}

// parse returns the mapping of a file, nil if it has none, and reports whether the file is YAML.
func parse(content string) (root *yaml.Node, isYAML bool) {
	var document yaml.Node
	if yaml.Unmarshal([]byte(content), &document) != nil {
		return nil, false
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, true
	}
	return document.Content[0], true
}
