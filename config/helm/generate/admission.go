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

// gpuPodRules are the names of the rules of the policy for GPU pods in values, by the variable that each reads.
var gpuPodRules = []struct{ name, variable string }{
	{"toleration", "variables.tolerates"}, {"shares", "variables.severalShares"}, {"devices", "variables.choosesDevices"},
}

// openRules lets the value gpuPodPolicyDisabledRules leave out rules of the policy for GPU pods. It adds the template
// actions for the placeholders to snippets.
func openRules(policy object, snippets map[string]string) error {
	if policy["kind"] != "ValidatingAdmissionPolicy" || in(policy, "metadata")["name"] != gpuPodPolicy {
		return nil
	}
	rules, _ := in(policy, "spec")["validations"].([]any)
	if len(rules) != len(gpuPodRules) {
		return fmt.Errorf("config/gpu-pods: the policy has %d rules: change gpuPodRules to match", len(rules))
	}
	const check, end = tokenPrefix + "RULES", tokenPrefix + "END"
	opened, names := []any{check}, ""
	for i, rule := range gpuPodRules {
		of, _ := rules[i].(object)
		if expression, _ := of["expression"].(string); !strings.Contains(expression, rule.variable) {
			return fmt.Errorf("config/gpu-pods: rule %d does not read %s: change gpuPodRules to match", i, rule.variable)
		}
		token := tokenPrefix + "RULE-" + rule.name
		opened, names = append(opened, token, of, end), names+fmt.Sprintf(" %q", rule.name)
		snippets[token] = fmt.Sprintf("{{- if not (has %q ($.Values.gpuPodPolicyDisabledRules | default list)) }}", rule.name)
	}
	in(policy, "spec")["validations"] = opened
	snippets[check] = fmt.Sprintf("{{- include \"gpu-operator.checkGPUPodRules\" (list $ (list%s)) }}", names)
	snippets[end] = "{{- end }}"
	return nil
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
