package specgen_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Random values at the edges of what the fields of a schema take, and beyond.

// leaf is a value without fields, or a whole block.
type leaf struct {
	path   []string
	schema *apiextensionsv1.JSONSchemaProps
}

const (
	anyElement = "[]"
	anyKey     = "{}"
)

func leavesOf(path []string, schema *apiextensionsv1.JSONSchemaProps) []leaf {
	below := func(name string) []string { return append(append([]string{}, path...), name) }
	switch {
	case len(schema.Properties) > 0:
		var all []leaf
		// In order, so that a seed repeats a run.
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			property := schema.Properties[name]
			all = append(all, leavesOf(below(name), &property)...)
		}
		return all
	case schema.Items != nil && schema.Items.Schema != nil:
		return leavesOf(below(anyElement), schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return leavesOf(below(anyKey), schema.AdditionalProperties.Schema)
	}
	return []leaf{{path, schema}}
}

// put sets the value in the object, with the blocks, lists and maps that it is in.
func (l leaf) put(object map[string]any, value any) {
	l.putBelow(object, l.path, value)
}

func (l leaf) putBelow(object map[string]any, path []string, value any) {
	name := path[0]
	if name == anyKey {
		name = "cpu"
	}
	if len(path) == 1 {
		object[name] = value
		return
	}
	if path[1] == anyElement {
		if len(path) == 2 {
			object[name] = []any{value}
			return
		}
		element := map[string]any{}
		if list, isList := object[name].([]any); isList {
			if first, isMap := list[0].(map[string]any); isMap {
				element = first
			}
		}
		object[name] = []any{element}
		l.putBelow(element, path[2:], value)
		return
	}
	inner, isMap := object[name].(map[string]any)
	if !isMap {
		inner = map[string]any{}
		object[name] = inner
	}
	l.putBelow(inner, path[1:], value)
}

// complete adds the fields that are required.
func complete(schema *apiextensionsv1.JSONSchemaProps, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range schema.Required {
			if property := schema.Properties[name]; value[name] == nil {
				value[name] = simple(&property)
			}
		}
		for name, inner := range value {
			if property, has := schema.Properties[name]; has {
				complete(&property, inner)
			}
		}
	case []any:
		if schema.Items != nil && len(value) > 0 {
			complete(schema.Items.Schema, value[0])
		}
	}
}

// simple returns a value that a field probably takes.
func simple(schema *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case len(schema.Enum) > 0:
		var first any
		_ = json.Unmarshal(schema.Enum[0].Raw, &first)
		return first
	case schema.Type == "integer":
		if schema.Minimum != nil {
			return int64(*schema.Minimum)
		}
		return int64(1)
	case schema.Type == "boolean":
		return true
	case schema.Format == "date-time":
		return "2026-11-27T10:00:00Z"
	case schema.Type == "object":
		block := map[string]any{}
		complete(schema, block)
		return block
	case schema.Type == "array":
		return []any{}
	}
	return "a"
}

// value returns a value of the leaf: mostly one of its type, at its edges.
func (l leaf) value(dice *rand.Rand) any {
	if dice.IntN(30) == 0 {
		return pick(dice, []any{nil, 5, "x", true, []any{}, map[string]any{}, 1.5, []any{map[string]any{"a": 5}}})
	}
	schema := l.schema
	switch {
	case schema.XIntOrString && dice.IntN(2) == 0, schema.Type == "integer", schema.Type == "number":
		return number(dice, schema)
	case schema.XIntOrString && strings.Contains(schema.Pattern, "KMGTPE"):
		return quantity(dice)
	case schema.XIntOrString:
		return pick(dice, []any{"25%", "0", "1", "100%", "99999999999", "1e5", "", "-1", quantity(dice)})
	case schema.Type == "boolean":
		return pick(dice, []any{true, false})
	case schema.Format == "date-time":
		return dateTime(dice)
	case len(schema.Enum) > 0 && dice.IntN(10) > 0:
		var chosen any
		_ = json.Unmarshal(schema.Enum[dice.IntN(len(schema.Enum))].Raw, &chosen)
		return chosen
	}
	return text(dice)
}

func pick[T any](dice *rand.Rand, values []T) T { return values[dice.IntN(len(values))] }

func number(dice *rand.Rand, schema *apiextensionsv1.JSONSchemaProps) any {
	edges := []string{
		"0", "1", "-1", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296", "99999999999",
		"9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e3", "1.0", "1.5", "1e19",
		"1e300", "-0", "65535", "65536", strconv.Itoa(dice.IntN(200)), strconv.Itoa(dice.IntN(100_000) - 50_000),
	}
	for _, bound := range []*float64{schema.Minimum, schema.Maximum} {
		if bound != nil {
			edges = append(edges, strconv.FormatInt(int64(*bound)-1, 10), strconv.FormatInt(int64(*bound), 10),
				strconv.FormatInt(int64(*bound)+1, 10))
		}
	}
	return json.RawMessage(pick(dice, edges))
}

func digits(dice *rand.Rand, most int) string {
	var text strings.Builder
	for range dice.IntN(most + 1) {
		text.WriteByte(byte('0' + dice.IntN(10)))
	}
	return text.String()
}

func quantity(dice *rand.Rand) string {
	most := pick(dice, []int{1, 3, 20, 22})
	mantissa := pick(dice, []string{"", "", "+", "-", " "}) + digits(dice, most)
	if dice.IntN(3) == 0 {
		mantissa += "." + digits(dice, most)
	}
	switch dice.IntN(3) {
	case 0:
		return mantissa + pick(dice, []string{"e", "E"}) + pick(dice, []string{"", "+", "-"}) +
			pick(dice, []string{digits(dice, 2), digits(dice, 4), digits(dice, 12), "1.5"})
	case 1:
		return mantissa + pick(dice, []string{"n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Ei", "Zi", "K", "i", "µ"})
	}
	return mantissa
}

func dateTime(dice *rand.Rand) string {
	two := func(most int) string { return fmt.Sprintf("%02d", dice.IntN(most+1)) }
	date := pick(dice, []string{
		"2026-11-27", "0000-01-01", "2024-02-29", "2023-02-29", "9999-12-31", "2026-13-01", "2026-02-" + two(32),
	})
	return date + pick(dice, []string{"T", "T", "T", "t", " "}) +
		pick(dice, []string{"10:00:00", two(25) + ":" + two(61) + ":" + two(61), "10:00", "1:00:00"}) +
		pick(dice, []string{"", "", ".5", ".123456789", ".1234567890123", ",5", "x5", "."}) +
		pick(dice, []string{"Z", "Z", "Z", "z", "+00:00", "-" + two(25) + ":" + two(61), "+99:99", "+0100", ""})
}

func text(dice *rand.Rand) string {
	return pick(dice, []string{
		"", "a", "10m", "1h30m", "999999999h", "99999999999999999999h", "0s", ".5s", "1.5.5s", "1000000000000ms", "5y", "99y",
		"9999999999y", "168h", "169h", "1s", "0.0000000000001s",
		digits(dice, 30) + pick(dice, []string{"h", "s", "ms", "d", "w"}),
		"25%", "2147483648", quantity(dice), dateTime(dice), "nvcr.io/nvidia/driver", "580.95.05", "\u0000", "\ud7ff", "ä€",
		"null", "true", "{}", strings.Repeat("x", dice.IntN(300)),
	})
}
