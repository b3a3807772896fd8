package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// tokenTaints is the placeholder for the taints that the operator may change.
const tokenTaints = tokenPrefix + "TAINTS"

// tokenMode is the placeholder for what happens to pods that the policy for GPU pods does not accept.
const tokenMode = tokenPrefix + "MODE"

// gpuPodPolicy is the name of the policy for GPU pods, and of its binding.
const gpuPodPolicy = "gpu-operator-gpu-pods"

// openMode lets the value gpuPodPolicy, such as warn, set the action of the binding of that policy. It adds the
// template action for the placeholder to snippets.
func openMode(binding object, snippets map[string]string) {
	if binding["kind"] != "ValidatingAdmissionPolicyBinding" || in(binding, "metadata")["name"] != gpuPodPolicy {
		return
	}
	in(binding, "spec")["validationActions"] = []any{tokenMode}
	snippets[tokenMode] = "{{ title $.Values.gpuPodPolicy }}"
}

// stringList matches a CEL list of one or more strings.
var stringList = regexp.MustCompile(`^\['[^'"` + "`" + `]+'(, *'[^'"` + "`" + `]+')*\]$`)

// openTaints lets chart values add the keys of start-up taints to those that an admission policy lets the operator
// change. It adds the template action for the placeholder to snippets.
func openTaints(policy object, snippets map[string]string) error {
	if policy["kind"] != "ValidatingAdmissionPolicy" {
		return nil
	}
	variables, _ := in(policy, "spec")["variables"].([]any)
	for _, element := range variables {
		variable, _ := element.(object)
		if variable["name"] != "ownTaints" {
			continue
		}
		expression, _ := variable["expression"].(string)
		if !stringList.MatchString(expression) {
			return errors.New("config/admission: the variable ownTaints is not a list of strings: change openTaints to match")
		}
		keys := strings.Fields(strings.NewReplacer("[", "", "]", "", ",", " ", "'", `"`).Replace(expression))
		variable["expression"] = tokenTaints
		snippets[tokenTaints] = fmt.Sprintf("{{ include \"gpu-operator.ownTaints\" (list $ (list %s)) }}",
			strings.Join(keys, " "))
	}
	return nil
}
