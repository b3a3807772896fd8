package main

import (
	"fmt"
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// rule is a rule of the definition that the templates can check, as it needs no other field: a text, or all keys of a
// map, must match a regular expression. The other rules need CEL: the API server checks them (check-policy.yaml).
type rule struct {
	expression, message string
	ofKeys              bool
}

var (
	textRule = regexp.MustCompile(`^self[.]matches[(]'([^'\\]+)'[)]$`)
	keysRule = regexp.MustCompile(`^self[.]all[(]k, k[.]matches[(]'([^'\\]+)'[)][)]$`)
)

// rulesOf returns those of one part of the definition.
func rulesOf(from *apiextensionsv1.JSONSchemaProps) []rule {
	var found []rule
	for _, validation := range from.XValidations {
		if match := textRule.FindStringSubmatch(validation.Rule); match != nil && from.Type == typeString {
			found = append(found, rule{expression: match[1], message: validation.Message})
		}
		if match := keysRule.FindStringSubmatch(validation.Rule); match != nil {
			found = append(found, rule{expression: match[1], message: validation.Message, ofKeys: true})
		}
	}
	return found
}

// patterns returns the regular expressions of all rules by their messages.
func (s *schema) patterns() (map[string]string, error) {
	found := map[string]string{}
	var collect func(s *schema) error
	collect = func(s *schema) error {
		if s == nil {
			return nil
		}
		for _, r := range s.rules {
			if before, there := found[r.message]; there && before != r.expression {
				return fmt.Errorf("the message %q belongs to two expressions, %s and %s: change one", r.message, before,
					r.expression)
			}
			found[r.message] = r.expression
		}
		for _, property := range s.Properties {
			if err := collect(property); err != nil {
				return err
			}
		}
		if err := collect(s.Items); err != nil {
			return err
		}
		return collect(s.AdditionalProperties)
	}
	return found, collect(s)
}
