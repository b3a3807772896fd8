package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The types of JSON Schema.
const (
	typeArray   = "array"
	typeBoolean = "boolean"
	typeInteger = "integer"
	typeNull    = "null"
	typeNumber  = "number"
	typeObject  = "object"
	typeString  = "string"
)

// schema is the part of JSON Schema that the values need. It accepts unknown keys: the chart's templates refuse them
// with a suggestion. It accepts null everywhere, which removes a value.
type schema struct {
	Dialect              string             `json:"$schema,omitempty"`
	Title                string             `json:"title,omitempty"`
	Description          string             `json:"description,omitempty"`
	Type                 []string           `json:"type,omitempty"`
	Default              any                `json:"default,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	If                   *schema            `json:"if,omitempty"`
	Then                 *schema            `json:"then,omitempty"`
	Minimum              *float64           `json:"minimum,omitempty"`
	Maximum              *float64           `json:"maximum,omitempty"`
	MinLength            *int64             `json:"minLength,omitempty"`
	MaxLength            *int64             `json:"maxLength,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	MaxItems             *int64             `json:"maxItems,omitempty"`
	MaxProperties        *int64             `json:"maxProperties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	AdditionalProperties *schema            `json:"additionalProperties,omitempty"`

	// chart: the key is the chart's own, not a field of the policy.
	chart bool
	// deployment: its default is in config/manager.
	deployment bool
	// whole: a type of Kubernetes, whose fields are not documented one by one.
	whole bool
	// quantity: a number or a string.
	quantity bool
	// image: the name of an image, beside its repository and its version.
	image bool
	// without is what happens instead, if the key has no effect.
	without string
	// rules are those of the definition that need no other field.
	rules []rule
}

// kind sets the type. A string may also be an integer, which --set driver.version=595 gives.
func (s *schema) kind(name string) *schema {
	s.Type = []string{name, typeNull}
	if name == typeString {
		s.Type = []string{typeString, typeInteger, typeNull}
	}
	return s
}

// enumerate allows one more string. The list is for strings only: Helm prints a list with null as "'none', <nil>".
func (s *schema) enumerate(value string) {
	s.Type = []string{typeString, typeNull}
	if s.Then == nil {
		s.If, s.Then = &schema{Type: []string{typeString}}, &schema{}
	}
	s.Then.Enum = append(s.Then.Enum, value)
}

// fromDefinition returns the schema of the values for a part of the policy.
func fromDefinition(from *apiextensionsv1.JSONSchemaProps) *schema {
	s := &schema{
		Description: strings.Join(strings.Fields(from.Description), " "),
		Minimum:     from.Minimum, Maximum: from.Maximum,
		MinLength: from.MinLength, MaxLength: from.MaxLength, Pattern: from.Pattern,
		MaxItems: from.MaxItems, MaxProperties: from.MaxProperties, Required: from.Required,
	}
	s.rules = rulesOf(from)
	if from.XIntOrString {
		s.Type, s.quantity = []string{typeString, typeNumber, typeNull}, true
		return s
	}
	s.kind(from.Type)
	for _, value := range from.Enum {
		var text string
		if err := json.Unmarshal(value.Raw, &text); err == nil {
			s.enumerate(text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.Properties)) {
		property := from.Properties[name]
		if s.Properties == nil {
			s.Properties = map[string]*schema{}
		}
		s.Properties[name] = fromDefinition(&property)
		s.Properties[name].whole = strings.HasSuffix(name, "Probe") || name == "podSecurityContext"
	}
	if from.Items != nil {
		s.Items = fromDefinition(from.Items.Schema)
	}
	if from.AdditionalProperties != nil {
		s.AdditionalProperties = fromDefinition(from.AdditionalProperties.Schema)
	}
	s.openStrings()
	return s
}

// openStrings accepts values of variables, labels and so on that YAML does not parse as strings: --set
// driver.env[0].value=true gives a boolean.
func (s *schema) openStrings() {
	for _, text := range []*schema{s.Properties["value"], s.AdditionalProperties} {
		if text != nil && !text.quantity && slices.Contains(text.Type, typeString) && text.Then == nil {
			text.Type = []string{typeString, typeNumber, typeBoolean, typeNull}
		}
	}
}

// openImages accepts a map for the name of an image, as charts with one map for an image have. The templates refuse it,
// and name the right form: Helm's own message would name the types alone.
func (s *schema) openImages() {
	image := s.Properties["image"]
	if image != nil && s.Properties["repository"] != nil && s.Properties["version"] != nil {
		image.image, image.Type = true, []string{typeString, typeInteger, typeObject, typeNull}
	}
	for _, property := range s.Properties {
		property.openImages()
	}
}

// at returns the schema of a path such as driver.version; nil if there is none.
func (s *schema) at(path string) *schema {
	for name := range strings.SplitSeq(path, ".") {
		if s = s.Properties[name]; s == nil {
			return nil
		}
	}
	return s
}

// add puts a leaf at a path, with the missing blocks above it; false if the path is taken.
func (s *schema) add(path []string, leaf *schema) bool {
	if s.Properties == nil {
		s.Properties = map[string]*schema{}
	}
	next := s.Properties[path[0]]
	if len(path) == 1 {
		if next != nil {
			return false
		}
		s.Properties[path[0]] = leaf
		return true
	}
	if next == nil {
		next = (&schema{chart: true}).kind(typeObject)
		s.Properties[path[0]] = next
	}
	return next.add(path[1:], leaf)
}

// visit calls a function for each key below, sorted, a block before its parts.
func (s *schema) visit(prefix string, do func(path string, s *schema)) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		do(prefix+name, property)
		property.visit(prefix+name+".", do)
	}
}

// leaf reports whether the documentation has one line for it.
func (s *schema) leaf() bool { return len(s.Properties) == 0 || s.whole }

// visitShown is visit without the parts that are not documented one by one.
func (s *schema) visitShown(prefix string, do func(path string, s *schema)) {
	if s.leaf() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		do(prefix+name, s.Properties[name])
		s.Properties[name].visitShown(prefix+name+".", do)
	}
}

// keys returns the schema as the templates need it: all keys, what their values become, and which are the chart's
// own.
func (s *schema) keys() map[string]any {
	node := map[string]any{}
	if s.chart {
		node["chart"] = true
	}
	for _, r := range s.rules {
		key := "match"
		if r.ofKeys {
			key = "matchKeys"
		}
		node[key] = r.message
	}
	switch {
	case len(s.Properties) > 0:
		inner := map[string]any{}
		for name, property := range s.Properties {
			inner[name] = property.keys()
		}
		node["keys"] = inner
	case s.Items != nil:
		node["items"] = s.Items.keys()
	case s.AdditionalProperties != nil:
		node["values"] = s.AdditionalProperties.keys()
	case s.quantity:
		node["as"] = "quantity"
	case s.image:
		node["as"], node["image"] = typeString, true
	case slices.Contains(s.Type, typeString) && !slices.Contains(s.Type, typeObject):
		node["as"] = typeString
	}
	return node
}
