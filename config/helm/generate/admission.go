package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// tokenTaints stands in the place of the taints that the operator may change.
const tokenTaints = tokenPrefix + "TAINTS"

// listOfTexts is a list of CEL with one text or more.
var listOfTexts = regexp.MustCompile(`^\['[^'"` + "`" + `]+'(, *'[^'"` + "`" + `]+')*\]$`)

// openTaints lets the values that name start-up taints add their keys to those that an admission policy lets the
// operator change. Snippets has the action for the token that it leaves.
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
		if !listOfTexts.MatchString(expression) {
			return errors.New("config/admission: the variable ownTaints is no list of texts: teach the generator how the chart adds to it")
		}
		keys := strings.Fields(strings.NewReplacer("[", "", "]", "", ",", " ", "'", `"`).Replace(expression))
		variable["expression"] = tokenTaints
		snippets[tokenTaints] = fmt.Sprintf("{{ include \"gpu-operator.ownTaints\" (list $ (list %s)) }}", strings.Join(keys, " "))
	}
	return nil
}
