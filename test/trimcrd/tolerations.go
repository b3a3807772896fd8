package main

// tolerationBounds are what Kubernetes requires of the fields of a toleration, which its Go type does not state in
// markers: without them, a wrong toleration is found only when the DaemonSets are applied.
var tolerationBounds = map[string]map[string]any{
	"key": {
		"maxLength": 317,
		"pattern":   "^(([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
	},
	// Lt and Gt are for a feature gate of Kubernetes.
	"operator": {"enum": []any{"", "Exists", "Equal", "Lt", "Gt"}},
	"effect":   {"enum": []any{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}},
	"value":    {"maxLength": 63, "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"},
}

// boundTolerations adds the bounds to the schema of a list of tolerations.
func boundTolerations(list map[string]any) {
	items, _ := list["items"].(map[string]any)
	properties, _ := items["properties"].(map[string]any)
	for name, bounds := range tolerationBounds {
		property, isSchema := properties[name].(map[string]any)
		if isSchema {
			setAll(property, bounds)
		}
	}
}
