package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

var (
	//go:embed keys.yaml
	keysYAML []byte
	//go:embed fields.yaml
	fieldsYAML []byte
)

// chartKey is a value that is not a field of the policy.
type chartKey struct {
	// Path is the dotted path, such as operator.logging.level.
	Path string `json:"path"`
	// Type is one of the types listed in keys.yaml.
	Type string `json:"type"`
	// Same names the field whose schema it shares, instead of a type.
	Same    string   `json:"same"`
	Default any      `json:"default"`
	Enum    []string `json:"enum"`
	Minimum *float64 `json:"minimum"`
	// From is "deployment" if the default is that of config/manager.
	From string `json:"from"`
	Text string `json:"text"`
	// Without is what happens instead, if the key has no effect.
	Without string `json:"without"`
}

// fields is what the chart adds to the definition of the policy's fields.
type fields struct {
	// Chart are the defaults that the chart itself sets.
	Chart map[string]any `json:"chart"`
	// Leaves and Blocks are the paths that the policy always has.
	Leaves []string `json:"leaves"`
	Blocks []string `json:"blocks"`
	// Ignored are the paths that the chart accepts with any value, and does not write into the policy.
	Ignored []string `json:"ignored"`
	// Without is what happens instead, for fields that have no effect.
	Without map[string]string `json:"without"`
}

// values describes the chart's values.
type values struct {
	keys   []chartKey
	fields fields
	order  order
	schema *schema
	// operators are the operator's defaults by path.
	operators map[string]any
}

func newValues() (*values, error) {
	v := &values{}
	if err := yaml.UnmarshalStrict(keysYAML, &v.keys); err != nil {
		return nil, fmt.Errorf("decoding keys.yaml: %w", err)
	}
	if err := yaml.UnmarshalStrict(fieldsYAML, &v.fields); err != nil {
		return nil, fmt.Errorf("decoding fields.yaml: %w", err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(crd.ClusterPolicy, definition); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	v.schema = fromDefinition(&spec)
	for _, block := range []string{"labels", "annotations"} {
		// In the chart they are those of the operator's Deployment.
		delete(v.schema.Properties["operator"].Properties, block)
	}
	return v, v.addKeys()
}

// addKeys adds the keys of the chart, and what fields.yaml has about those of the policy.
func (v *values) addKeys() error {
	for _, key := range v.keys {
		leaf, err := v.leaf(key)
		if err != nil {
			return err
		}
		if !v.schema.add(strings.Split(key.Path, "."), leaf) {
			return fmt.Errorf("keys.yaml: %s is a field of the policy already", key.Path)
		}
	}
	v.schema.openImages()
	if err := v.setImages(); err != nil {
		return err
	}
	var err error
	if v.operators, err = operatorDefaults(); err != nil {
		return err
	}
	for _, defaults := range []map[string]any{v.operators, v.fields.Chart} {
		for path, value := range defaults {
			field := v.schema.at(path)
			if field == nil {
				return fmt.Errorf("the default of %s: the policy has no such field", path)
			}
			field.Default = value
		}
	}
	if err := v.markFields(); err != nil {
		return err
	}
	return v.setOrder()
}

// markFields marks the policy's fields that the chart does not write, and those without effect.
func (v *values) markFields() error {
	for _, path := range v.fields.Ignored {
		field := v.schema.at(path)
		if field == nil {
			return fmt.Errorf("fields.yaml: the policy has no field %s", path)
		}
		field.chart, field.If, field.Then = true, nil, nil
		field.kind(field.Type[0])
	}
	for path, sentence := range v.fields.Without {
		field := v.schema.at(path)
		if field == nil {
			return fmt.Errorf("fields.yaml: the policy has no field %s", path)
		}
		field.without = sentence
	}
	return nil
}

// operatorDefaults returns the defaults of the policy's fields, by path.
func operatorDefaults() (map[string]any, error) {
	// The presence of this block has a meaning, so it has its own defaults.
	layouts := &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{}}
	spec := effective.Of(v1.ClusterPolicySpec{MIGManager: layouts})
	text, err := json.Marshal(spec.ClusterPolicySpec)
	if err != nil {
		return nil, fmt.Errorf("encoding the defaults: %w", err)
	}
	tree := map[string]any{}
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("decoding the defaults: %w", err)
	}
	maxUnavailable := spec.MaxUnavailable(false)
	found := map[string]any{"daemonsets.rollingUpdate.maxUnavailable": maxUnavailable.String()}
	var walk func(prefix string, block map[string]any)
	walk = func(prefix string, block map[string]any) {
		for key, value := range block {
			if inner, isBlock := value.(map[string]any); isBlock {
				walk(prefix+key+".", inner)
				continue
			}
			found[prefix+key] = value
		}
	}
	walk("", tree)
	return found, nil
}

// leaf returns the schema of a key of the chart.
func (v *values) leaf(key chartKey) (*schema, error) {
	if key.Same != "" {
		field := v.schema.at(key.Same)
		if field == nil {
			return nil, fmt.Errorf("keys.yaml: %s refers to %s, which does not exist", key.Path, key.Same)
		}
		same := *field
		same.Description, same.chart, same.whole = key.Text, true, true
		return &same, nil
	}
	leaf := &schema{
		Description: key.Text, Default: key.Default, Minimum: key.Minimum, chart: true, without: key.Without,
		deployment: key.From != "",
	}
	switch key.Type {
	case "string":
		leaf.kind(typeString)
		for _, value := range key.Enum {
			leaf.enumerate(value)
		}
	case typeBoolean, typeInteger:
		leaf.kind(key.Type)
	case "strings":
		leaf.kind(typeArray)
		leaf.Items = (&schema{}).kind(typeString)
	case "map":
		leaf.kind(typeObject)
		leaf.AdditionalProperties = (&schema{}).kind(typeString)
		leaf.openStrings()
	case "list", "env":
		leaf.kind(typeArray)
		leaf.Items = &schema{}
	case "object":
		leaf.kind(typeObject)
	case "text-or-map":
		leaf.Type = []string{typeString, typeObject, typeNull}
	default:
		return nil, fmt.Errorf("keys.yaml: %s has the unknown type %q", key.Path, key.Type)
	}
	return leaf, nil
}

// files returns the generated files that depend on the values.
func (v *values) files() (map[string][]byte, error) {
	complete := *v.schema
	complete.Dialect = "https://json-schema.org/draft/2020-12/schema"
	complete.Title = "Values of the chart gpu-operator"
	schemaJSON, err := json.MarshalIndent(complete, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	always, err := v.always()
	if err != nil {
		return nil, err
	}
	patterns, err := v.schema.patterns()
	if err != nil {
		return nil, err
	}
	keys, err := json.Marshal(map[string]any{
		"keys": v.schema.keys(), "paths": v.paths(), "without": v.without(), "always": always, "patterns": patterns,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the keys: %w", err)
	}
	documented, err := v.valuesYAML()
	if err != nil {
		return nil, err
	}
	readme, err := v.readme()
	return map[string][]byte{
		"values.schema.json": append(schemaJSON, '\n'),
		"files/keys.json":    append(keys, '\n'),
		"values.yaml":        documented,
		"README.md":          readme,
	}, err
}

// always returns what the policy always has: the operator's default of each leaf, and empty blocks.
func (v *values) always() (object, error) {
	tree := object{}
	for _, path := range slices.Concat(v.fields.Blocks, v.fields.Leaves) {
		field := v.schema.at(path)
		if field == nil {
			return nil, fmt.Errorf("fields.yaml: the policy has no field %s", path)
		}
		keys := strings.Split(path, ".")
		above := in(tree, keys[:len(keys)-1]...)
		if slices.Contains(v.fields.Blocks, path) {
			in(above, keys[len(keys)-1])
			continue
		}
		above[keys[len(keys)-1]] = cmp.Or(v.operators[path], (&schema{Type: field.Type}).fallback())
	}
	return tree, nil
}

// paths returns the paths of all keys except lists and maps of arbitrary keys, sorted.
func (v *values) paths() []string {
	var paths []string
	v.schema.visit("", func(path string, _ *schema) { paths = append(paths, path) })
	return paths
}

// without returns the keys without effect, sorted, each with what happens instead, and whether it is not in the policy.
func (v *values) without() []map[string]any {
	found := map[string]*schema{}
	v.schema.visit("", func(path string, s *schema) {
		if s.without != "" {
			found[path] = s
		}
	})
	var list []map[string]any
	for _, path := range slices.Sorted(maps.Keys(found)) {
		list = append(list, map[string]any{"path": path, "instead": found[path].without, "chart": found[path].chart})
	}
	return list
}
