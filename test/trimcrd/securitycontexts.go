package main

import "math"

// id are the bounds of the ID of a user or a group.
var id = map[string]any{"minimum": 0, "maximum": math.MaxInt32}

// profileTypes are the types of seccomp and AppArmor profiles.
var profileTypes = map[string]any{"enum": []any{"RuntimeDefault", "Unconfined", "Localhost"}}

// contextBounds are what Kubernetes requires of single fields of a pod's security context, by their paths, which its Go
// type does not state in markers. Package podrules has the rules about several fields.
var contextBounds = []struct {
	path   []string
	bounds map[string]any
}{
	{[]string{"runAsUser"}, id},
	{[]string{"runAsGroup"}, id},
	{[]string{"fsGroup"}, id},
	{[]string{"fsGroupChangePolicy"}, map[string]any{"enum": []any{"OnRootMismatch", "Always"}}},
	{[]string{"supplementalGroupsPolicy"}, map[string]any{"enum": []any{"Merge", "Strict"}}},
	{[]string{"seLinuxChangePolicy"}, map[string]any{"enum": []any{"Recursive", "MountOption"}}},
	{[]string{"seccompProfile", "type"}, profileTypes},
	{[]string{"appArmorProfile", "type"}, profileTypes},
}

// boundSecurityContext adds the bounds to the schema of a pod's security context.
func boundSecurityContext(context map[string]any) {
	for _, field := range contextBounds {
		schema := context
		for _, name := range field.path {
			properties, _ := schema["properties"].(map[string]any)
			schema, _ = properties[name].(map[string]any)
		}
		setAll(schema, field.bounds)
	}
	properties, _ := context["properties"].(map[string]any)
	groups, _ := properties["supplementalGroups"].(map[string]any)
	items, _ := groups["items"].(map[string]any)
	setAll(items, id)
}

// setAll sets keywords in a schema, unless it is nil.
func setAll(schema, keywords map[string]any) {
	for keyword, value := range keywords {
		if schema != nil {
			schema[keyword] = value
		}
	}
}
