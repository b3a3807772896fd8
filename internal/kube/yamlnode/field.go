package yamlnode

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Root returns the content of a document, nil if it is empty or null.
func Root(document *yaml.Node) *yaml.Node {
	if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
		return nil
	}
	return document.Content[0]
}

// Field returns the value of a key of a mapping, nil if it has none or null.
func Field(mapping *yaml.Node, key string) *yaml.Node {
	return fieldWhere(mapping, func(name string) bool { return name == key })
}

// FieldFold is Field for programs that read a key in any case, as encoding/json does for structs. The exact one is
// preferred.
func FieldFold(mapping *yaml.Node, key string) *yaml.Node {
	if value := Field(mapping, key); value != nil {
		return value
	}
	return fieldWhere(mapping, func(name string) bool { return strings.EqualFold(name, key) })
}

func fieldWhere(mapping *yaml.Node, matches func(key string) bool) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if matches(mapping.Content[i].Value) && mapping.Content[i+1].Tag != "!!null" {
			return mapping.Content[i+1]
		}
	}
	return nil
}
