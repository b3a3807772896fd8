// Command trimcrd takes the descriptions out of those parts of a CustomResourceDefinition whose types
// Kubernetes defines. They are the same for each use, are in the documentation of Kubernetes, and would be a
// large part of what kubectl apply can take. It also writes the properties of the schema alone, as JSON, for the operator
// to compare with those of the cluster.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// foreign are the fields with types of Kubernetes.
var foreign = map[string]bool{"tolerations": true, "podSecurityContext": true}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments, the file of the definition and that of its properties, got %d", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	definition := map[string]any{}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("decoding %s: %w", args[0], err)
	}
	trim(definition)
	trimmed, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", args[0], err)
	}
	const readable = 0o644
	if err := os.WriteFile(args[0], append([]byte("---\n"), trimmed...), readable); err != nil {
		return err
	}
	properties, err := json.Marshal(crd.Properties(crd.Schema(definition)))
	if err != nil {
		return fmt.Errorf("encoding the properties of %s: %w", args[0], err)
	}
	return os.WriteFile(args[1], append(properties, '\n'), readable)
}

// trim finds the fields, and keeps their own descriptions.
func trim(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if schema, isMap := inner.(map[string]any); isMap && foreign[name] {
				dropDescriptions(schema["items"])
				dropDescriptions(schema["properties"])
				continue
			}
			trim(inner)
		}
	case []any:
		for _, inner := range value {
			trim(inner)
		}
	}
}

func dropDescriptions(value any) {
	switch value := value.(type) {
	case map[string]any:
		// A property may also be named description: then it is a map.
		if _, isText := value["description"].(string); isText {
			delete(value, "description")
		}
		for _, inner := range value {
			dropDescriptions(inner)
		}
	case []any:
		for _, inner := range value {
			dropDescriptions(inner)
		}
	}
}
