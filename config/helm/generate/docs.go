package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/operands"
)

// width is where comments of values.yaml are broken.
const width = 110

// setImages gives the image keys of each block the operator's defaults.
func (v *values) setImages() error {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return err
	}
	for _, fallback := range catalogue.Images() {
		if fallback.Field == "" {
			continue
		}
		s := v.schema.at(fallback.Field)
		if s == nil {
			return fmt.Errorf("the image %s: %s is no block of the policy", fallback.Name, fallback.Field)
		}
		s.Properties["repository"].Default = fallback.Repository
		s.Properties["image"].Default = fallback.Image
		s.Properties["version"].Default = fallback.Version
	}
	return nil
}

// fallback is what a key is where nothing is said.
func (s *schema) fallback() any {
	switch {
	case s.Default != nil:
		return s.Default
	case slices.Contains(s.Type, typeObject):
		return map[string]any{}
	case slices.Contains(s.Type, typeArray):
		return []any{}
	case slices.Contains(s.Type, typeBoolean):
		return false
	case slices.Contains(s.Type, typeString):
		return ""
	}
	return 0
}

// valuesYAML shows every key with its default. Only what the chart itself decides is not commented out.
func (v *values) valuesYAML() ([]byte, error) {
	text := bytes.NewBufferString(`# Written by make chart. Everything here may be left out.
#
# What is commented out is the default, which the operator itself knows: only what you set reaches the
# ClusterPolicy. The names are those of NVIDIA's chart. A key that does not exist is refused, with the one
# that was meant.
`)
	for _, name := range slices.Sorted(maps.Keys(v.schema.Properties)) {
		text.WriteString("\n")
		if err := v.block(text, name, v.schema.Properties[name], name, 0); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// block writes one key with all below it.
func (v *values) block(text *bytes.Buffer, name string, s *schema, path string, depth int) error {
	indent := strings.Repeat("  ", depth)
	lead := "# "
	if v.chosen(path) {
		lead = ""
	}
	for line := range strings.Lines(wrap(s.Description, width-len(indent))) {
		if depth == 0 {
			text.WriteString("## " + strings.TrimSpace(line) + "\n")
			continue
		}
		text.WriteString(lead + indent + "## " + strings.TrimSpace(line) + "\n")
	}
	if s.leaf() {
		value, err := json.Marshal(s.fallback())
		if err != nil {
			return fmt.Errorf("encoding the default of %s: %w", path, err)
		}
		fmt.Fprintf(text, "%s%s%s: %s\n", lead, indent, name, value)
		return nil
	}
	fmt.Fprintf(text, "%s%s%s:\n", lead, indent, name)
	for _, inner := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := v.block(text, inner, s.Properties[inner], path+"."+inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// chosen tells whether the chart itself sets the key or one below it.
func (v *values) chosen(path string) bool {
	for chosen := range v.fields.Chart {
		if chosen == path || strings.HasPrefix(chosen, path+".") {
			return true
		}
	}
	return false
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

const readmeHead = `# Chart gpu-operator

Written by make chart.

` + "```" + `
helm install gpu-operator config/helm/gpu-operator --namespace gpu-operator --create-namespace --wait --timeout 10m
` + "```" + `

[docs/install.md](../../../docs/install.md) tells about upgrades, GitOps and removal. The values have the names of NVIDIA's chart; those beside them are extensions.
Only what you set reaches the ClusterPolicy: the defaults below live in the operator, but for %s, which the chart sets.
A key that does not exist is refused, with the one that was meant. null removes a value.

`

// readme is the reference of the values.
func (v *values) readme() ([]byte, error) {
	var chosen []string
	for _, path := range slices.Sorted(maps.Keys(v.fields.Chart)) {
		chosen = append(chosen, fmt.Sprintf("`%s: %v`", path, v.fields.Chart[path]))
	}
	text := bytes.NewBufferString(fmt.Sprintf(readmeHead, strings.Join(chosen, " and ")))
	for _, name := range slices.Sorted(maps.Keys(v.schema.Properties)) {
		s := v.schema.Properties[name]
		fmt.Fprintf(text, "## %s\n\n%s\n\n| key | default | meaning |\n|---|---|---|\n", name, s.Description)
		if s.leaf() {
			if err := row(text, name, s); err != nil {
				return nil, err
			}
		}
		var failed error
		s.visitShown(name+".", func(path string, s *schema) {
			if err := row(text, path, s); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return nil, failed
		}
		text.WriteString("\n")
	}
	return append(bytes.TrimRight(text.Bytes(), "\n"), '\n'), nil
}

// row is one key of the reference; blocks have rows of their own only by their parts.
func row(text *bytes.Buffer, path string, s *schema) error {
	if !s.leaf() {
		return nil
	}
	value, err := json.Marshal(s.fallback())
	if err != nil {
		return fmt.Errorf("encoding the default of %s: %w", path, err)
	}
	shown := "`" + string(value) + "`"
	meaning := s.Description
	if s.without != "" && !strings.Contains(meaning, "no effect") {
		meaning += " Without effect: " + s.without + "."
	}
	fmt.Fprintf(text, "| `%s` | %s | %s |\n", path, strings.ReplaceAll(shown, "|", `\|`), strings.ReplaceAll(meaning, "|", `\|`))
	return nil
}
