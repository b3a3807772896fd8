package crd

import (
	"maps"
	"slices"
)

// Schema returns the schema of the version v1 in a definition, without copying it; nil if there is none.
func Schema(definition map[string]any) map[string]any { return SchemaOf(definition, "v1") }

// SchemaOf is Schema of any version.
func SchemaOf(definition map[string]any, name string) map[string]any {
	// A malformed definition has no versions, so that all properties are missing.
	versions, _ := below(definition, "spec")["versions"].([]any)
	for _, candidate := range versions {
		version, isMap := candidate.(map[string]any)
		if isMap && version["name"] == name {
			return below(below(version, "schema"), "openAPIV3Schema")
		}
	}
	return nil
}

// Properties returns the parts of a schema that Missing compares.
func Properties(schema map[string]any) map[string]any {
	kept := map[string]any{}
	if inner := below(schema, "properties"); inner != nil {
		properties := make(map[string]any, len(inner))
		for name := range inner {
			properties[name] = Properties(below(inner, name))
		}
		kept["properties"] = properties
	}
	for _, element := range []string{"items", "additionalProperties"} {
		if inner := below(schema, element); inner != nil {
			kept[element] = Properties(inner)
		}
	}
	return kept
}

// Missing returns the properties of the schema own that the schema live does not have, sorted, such as spec.global.
// Properties below a missing one are not listed.
func Missing(own, live map[string]any) []string { return missingBelow(own, live, "") }

func missingBelow(own, live map[string]any, path string) []string {
	if live["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	has := below(live, "properties")
	var missing []string
	properties := below(own, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if has[name] == nil {
			missing = append(missing, path+name)
			continue
		}
		missing = append(missing, missingBelow(below(properties, name), below(has, name), path+name+".")...)
	}
	for _, element := range []string{"items", "additionalProperties"} {
		if inner := below(own, element); inner != nil {
			missing = append(missing, missingBelow(inner, below(live, element), path)...)
		}
	}
	return missing
}

// Dropped returns the properties of a value that its schema does not have, sorted, with the same names as those of
// Missing: the API server drops them without an error. path is the position of the value, empty or ending with a dot.
func Dropped(schema map[string]any, value any, path string) []string {
	missing := dropped(schema, value, path)
	slices.Sort(missing)
	return slices.Compact(missing)
}

func dropped(schema map[string]any, value any, path string) []string {
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	var missing []string
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			missing = append(missing, dropped(below(schema, "items"), element, path)...)
		}
	case map[string]any:
		properties, others := below(schema, "properties"), below(schema, "additionalProperties")
		for name, inner := range value {
			switch {
			case properties[name] != nil:
				missing = append(missing, dropped(below(properties, name), inner, path+name+".")...)
			case others != nil:
				missing = append(missing, dropped(others, inner, path)...)
			case schema["additionalProperties"] != true:
				missing = append(missing, path+name)
			}
		}
	}
	return missing
}

// Below returns the schema of a property, nil if there is none.
func Below(schema map[string]any, property string) map[string]any {
	return below(below(schema, "properties"), property)
}

func below(in map[string]any, key string) map[string]any {
	inner, _ := in[key].(map[string]any)
	return inner
}
