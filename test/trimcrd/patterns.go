package main

import (
	"regexp"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// driverOfNodePools returns the schema of spec.nodePools[].driver, nil if there is none.
func driverOfNodePools(schema map[string]any) map[string]any {
	pools, _ := crd.Below(crd.Below(schema, "spec"), "nodePools")["items"].(map[string]any)
	return crd.Below(pools, "driver")
}

// matches is a rule that only compares a value with a regular expression.
var matches = regexp.MustCompile(`^self\.matches\('([^']*)'\)$`)

// usePatterns replaces rules that compare a value with a regular expression by patterns, in a schema and all below it:
// the API server multiplies the cost of a rule by the number of node pools, and Kubernetes 1.32 then refuses the
// definition. A pattern costs nothing, and its error shows the expression.
func usePatterns(value any) {
	switch value := value.(type) {
	case map[string]any:
		usePattern(value)
		for _, inner := range value {
			usePatterns(inner)
		}
	case []any:
		for _, inner := range value {
			usePatterns(inner)
		}
	}
}

func usePattern(schema map[string]any) {
	const rules = "x-kubernetes-validations"
	list, _ := schema[rules].([]any)
	if len(list) != 1 {
		return
	}
	only, _ := list[0].(map[string]any)
	text, _ := only["rule"].(string)
	if found := matches.FindStringSubmatch(text); found != nil {
		schema["pattern"] = found[1]
		delete(schema, rules)
	}
}
