package yamlnode

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Line returns the line, from 1, of a field in a document of YAML or JSON. path is as the API server writes it, such as
// spec.tolerations[0].key or spec.limits[example.com/nic]. Of a missing field it is the line of the nearest field above
// it that is there. It is 0 if the document is empty or cannot be parsed.
func Line(document []byte, path string) int {
	parsed := yaml.Node{}
	if err := yaml.Unmarshal(document, &parsed); err != nil {
		return 0
	}
	at := Root(&parsed)
	if at == nil {
		return 0
	}
	line := at.Line
	for path != "" && at != nil {
		var key string
		if key, path = firstKey(path); key == "" {
			continue
		}
		found, value := child(at, key)
		if found == nil {
			break
		}
		line, at = found.Line, value
	}
	return line
}

// firstKey cuts the first name, key or index off a path.
func firstKey(path string) (key, rest string) {
	if inner, isKey := strings.CutPrefix(path, "["); isKey {
		key, rest, _ = strings.Cut(inner, "]")
		return key, rest
	}
	path = strings.TrimPrefix(path, ".")
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// child returns the node where a key or an item begins, and its value; nil if there is none.
func child(of *yaml.Node, key string) (begin, value *yaml.Node) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	switch of.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(of.Content); i += 2 {
			if of.Content[i].Value == key {
				return of.Content[i], of.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(of.Content) {
			return of.Content[i], of.Content[i]
		}
	}
	return nil, nil
}
