package runenv

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Rule sets a variable that the container leaves unset, or empty, to a value that depends on the node.
type Rule struct {
	// Name of the variable.
	Name string
	// Source of the value: a key of the marker, or a kernel module.
	Source string
}

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ParseRules reads rules of the form NAME=SOURCE. It fails on one that has another form.
func ParseRules(texts []string) ([]Rule, error) {
	rules := make([]Rule, 0, len(texts))
	for _, text := range texts {
		name, source, _ := strings.Cut(text, "=")
		if !namePattern.MatchString(name) || !namePattern.MatchString(source) {
			return nil, fmt.Errorf("%q does not have the form VARIABLE=SOURCE", text)
		}
		rules = append(rules, Rule{Name: name, Source: source})
	}
	return rules, nil
}

// FromMarker applies rules whose sources are keys of the marker, from which env was made. It fails on a key that
// is not in the marker.
func FromMarker(env []string, found []marker.Assignment, rules []Rule) ([]string, error) {
	for _, rule := range rules {
		at := slices.IndexFunc(found, func(a marker.Assignment) bool { return a.Key == rule.Source })
		if at < 0 {
			return nil, fmt.Errorf("the marker has no line %s=, from which %s is set; name one that has it by --marker",
				rule.Source, rule.Name)
		}
		env = setUnset(env, rule.Name, found[at].Value)
	}
	return env, nil
}

// FromModules applies rules whose sources are kernel modules: the variable becomes "true" if its module
// is loaded, and stays unset if not.
func FromModules(env []string, loaded func(module string) bool, rules []Rule) []string {
	for _, rule := range rules {
		if loaded(rule.Source) {
			env = setUnset(env, rule.Name, labels.True)
		}
	}
	return env
}

// setUnset sets a variable that is missing or empty; shells treat both as unset.
func setUnset(env []string, name, value string) []string {
	prefix := name + "="
	if slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, prefix) && entry != prefix }) {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return entry == prefix })
	return append(env, prefix+value)
}
