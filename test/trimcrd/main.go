// Command trimcrd shortens the descriptions in a CustomResourceDefinition, so that kubectl apply can store it in an
// annotation: of each field it keeps the first paragraph, and docs/api.md has the rest. It adds the bounds of
// tolerations, security contexts and numbers, whose types are those of Kubernetes. It prints the size and fails above
// crd.MaxSize. It also writes the properties of the schema, as JSON, for the operator to compare with the cluster's.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// foreign are the fields whose types Kubernetes defines and documents: only the fields themselves are described.
var foreign = map[string]bool{
	"tolerations": true, "podSecurityContext": true, "nodeAffinity": true, "conditions": true,
}

// likeKubernetes are the blocks that almost every operand has and whose fields mean what they mean in a Pod.
// docs/api.md describes these fields once.
var likeKubernetes = map[string]bool{
	"env": true, "resources": true, "containerResources": true,
	"startupProbe": true, "livenessProbe": true, "readinessProbe": true,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 && len(args) != 2 {
		return fmt.Errorf("want the file of the definition and, if needed, that of its properties, got %d", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	definition := map[string]any{}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("decoding %s: %w", args[0], err)
	}
	schema, err := schemaOf(definition)
	if err != nil {
		return fmt.Errorf("reading %s: %w", args[0], err)
	}
	trim(schema)
	usePatterns(driverOfNodePools(schema))
	boundNumbers(schema)
	trimmed, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", args[0], err)
	}
	const readable = 0o644
	if err := os.WriteFile(args[0], append([]byte("---\n"), trimmed...), readable); err != nil {
		return err
	}
	if len(args) > 1 {
		properties, err := json.Marshal(crd.Properties(schema))
		if err != nil {
			return fmt.Errorf("encoding the properties of %s: %w", args[0], err)
		}
		if err := os.WriteFile(args[1], append(properties, '\n'), readable); err != nil {
			return err
		}
	}
	return checkSize(definition)
}

// schemaOf is the schema of the only version of a definition.
func schemaOf(definition map[string]any) (map[string]any, error) {
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return nil, fmt.Errorf("want one version, got %d", len(versions))
	}
	version, _ := versions[0].(map[string]any)
	name, _ := version["name"].(string)
	return crd.SchemaOf(definition, name), nil
}

func checkSize(definition map[string]any) error {
	size, err := crd.Size(definition)
	if err != nil {
		return err
	}
	fmt.Printf("CRD: %d bytes of %d\n", size, crd.MaxSize)
	if size > crd.MaxSize {
		return fmt.Errorf(
			"the CRD has %d bytes of JSON, at most %d are allowed: shorten first paragraphs of field comments",
			size,
			crd.MaxSize,
		)
	}
	return nil
}

// trim shortens the descriptions of a schema and of all below it.
func trim(schema map[string]any) {
	if text, isText := schema["description"].(string); isText {
		schema["description"] = summary(text)
	}
	for _, element := range []string{"items", "additionalProperties"} {
		if inner, isSchema := schema[element].(map[string]any); isSchema {
			trim(inner)
			// The field that holds the elements describes them.
			delete(inner, "description")
		}
	}
	if schema["x-kubernetes-int-or-string"] == true {
		// The API server adds the choice between an integer and a string itself.
		delete(schema, "anyOf")
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, inner := range properties {
		property, isSchema := inner.(map[string]any)
		if !isSchema {
			continue
		}
		trim(property)
		if text, isText := property["description"].(string); isText {
			property["description"] = withoutName(text, name)
		}
		if foreign[name] || likeKubernetes[name] {
			dropDescriptions(property["items"])
			dropDescriptions(property["properties"])
		}
		switch name {
		case "tolerations":
			boundTolerations(property)
		case "podSecurityContext":
			boundSecurityContext(property)
		}
	}
}

// moreInfo begins the part of the descriptions of apiVersion and kind that is the same for every kind.
const moreInfo = "\nServers "

// summary is the first paragraph of a description, as one line.
func summary(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	text, _, _ = strings.Cut(text, moreInfo)
	return strings.Join(strings.Fields(text), " ")
}

// predicate matches the words after the name of a field in a comment of Go: "is the ...", "replaces ...".
var predicate = regexp.MustCompile(`^(?:(?:is|are) (an? |the |how )|([a-z]+s) )`)

// withoutName drops the name from the beginning of a field's description, as kubectl explain shows it beside:
// "Repository is the registry and path" becomes "The registry and path".
func withoutName(text, name string) string {
	first, rest, _ := strings.Cut(text, " ")
	words := predicate.FindStringSubmatch(rest)
	if !strings.EqualFold(
		first, strings.ReplaceAll(name, "_", ""),
	) || words == nil || words[2] == "is" || words[2] == "as" {
		return text
	}
	if words[1] != "" {
		rest = words[1] + strings.TrimPrefix(rest, words[0])
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
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
