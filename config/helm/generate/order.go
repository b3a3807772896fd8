package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed order.yaml
var orderYAML []byte

// order is the order in which the documentation lists the values.
type order struct {
	// Common are the values that most people set.
	Common []commonValue `json:"common"`
	// Machines are the blocks for virtual machines alone.
	Machines []string `json:"machines"`
}

// commonValue is a value that most people set.
type commonValue struct {
	// Path is the dotted path, such as driver.enabled.
	Path string `json:"path"`
	// Text says in one line when to set it.
	Text string `json:"text"`
}

// section is a part of the documentation with blocks of values.
type section struct {
	title  string
	blocks []string
}

// setOrder reads the order, and refuses one that names what is no value or no block.
func (v *values) setOrder() error {
	if err := yaml.UnmarshalStrict(orderYAML, &v.order); err != nil {
		return fmt.Errorf("decoding order.yaml: %w", err)
	}
	return v.checkOrder()
}

func (v *values) checkOrder() error {
	for _, common := range v.order.Common {
		if field := v.schema.at(common.Path); field == nil || !field.leaf() {
			return fmt.Errorf("order.yaml: common has %s, which is no value", common.Path)
		}
	}
	for _, block := range v.order.Machines {
		if v.schema.Properties[block] == nil {
			return fmt.Errorf("order.yaml: machines has %s, which is no block", block)
		}
		if v.rank(block) < len(v.order.Common) {
			return fmt.Errorf("order.yaml: machines has %s, and common has a value of it: remove one", block)
		}
	}
	return nil
}

// rank returns the place of a key among the common values, by the first of them at the key or below it, or else their
// number.
func (v *values) rank(path string) int {
	for i, common := range v.order.Common {
		if common.Path == path || strings.HasPrefix(common.Path, path+".") {
			return i
		}
	}
	return len(v.order.Common)
}

// sorted returns the names of the keys of a block, those with common values first, then by name. The prefix is the path
// of the block with a dot, or empty.
func (v *values) sorted(prefix string, keys map[string]*schema) []string {
	names := slices.Sorted(maps.Keys(keys))
	slices.SortStableFunc(names, func(a, b string) int { return v.rank(prefix+a) - v.rank(prefix+b) })
	return names
}

// sections returns all blocks in their order.
func (v *values) sections() []section {
	var common, others []string
	for _, name := range v.sorted("", v.schema.Properties) {
		switch {
		case v.rank(name) < len(v.order.Common):
			common = append(common, name)
		case !slices.Contains(v.order.Machines, name):
			others = append(others, name)
		}
	}
	return []section{
		{"Blocks with values that most people set", common},
		{"Other blocks", others},
		{"Blocks for virtual machines, which are not supported yet", v.order.Machines},
	}
}

// commonDefault returns the default of a common value, and whether the chart itself sets it.
func (v *values) commonDefault(path string) (text string, isSet bool, err error) {
	value, err := json.Marshal(v.schema.at(path).fallback())
	if err != nil {
		return "", false, fmt.Errorf("encoding the default of %s: %w", path, err)
	}
	return string(value), v.chosen(path), nil
}

// commonComment returns the comment of values.yaml with the common values, a line for each.
func (v *values) commonComment() (string, error) {
	longest := 0
	for _, common := range v.order.Common {
		longest = max(longest, len(common.Path))
	}
	var text strings.Builder
	for _, common := range v.order.Common {
		value, isSet, err := v.commonDefault(common.Path)
		if err != nil {
			return "", err
		}
		note := "default "
		if isSet {
			note = "the chart sets "
		}
		lead := fmt.Sprintf("#   %-*s  ", longest, common.Path)
		for line := range strings.Lines(wrap(fmt.Sprintf("%s (%s%s)", common.Text, note, value), lineWidth-len(lead))) {
			text.WriteString(lead + strings.TrimSpace(line) + "\n")
			lead = "#" + strings.Repeat(" ", len(lead)-1)
		}
	}
	return text.String(), nil
}

// commonTable returns the rows of the README with the common values.
func (v *values) commonTable() (string, error) {
	var text strings.Builder
	for _, common := range v.order.Common {
		value, isSet, err := v.commonDefault(common.Path)
		if err != nil {
			return "", err
		}
		set := ""
		if isSet {
			set = ", set by the chart"
		}
		fmt.Fprintf(&text, "| `%s` | `%s`%s | %s |\n", common.Path, value, set, common.Text)
	}
	return text.String(), nil
}
