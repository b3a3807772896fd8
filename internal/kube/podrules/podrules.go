package podrules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// Problem is a value that no pod can have, or a selector of pods that cannot be read.
type Problem struct {
	// Field of the API that is a part of pods, such as spec.driver.resources.
	Field string
	// Below is the path of the value in it, such as .requests[cpu]; empty for all of it.
	Below string
	// Message says what is wrong, and what to change.
	Message string
}

// String returns the path of the value, and what is wrong with it.
func (p Problem) String() string { return p.Field + p.Below + ": " + p.Message }

// report adds a problem below the field that is being checked.
type report func(below, format string, args ...any)

// Check returns what no pod can have of a block of the API, such as a whole spec, and its selectors of pods that cannot
// be read, in the order of its fields. path is that of the block.
func Check(block any, path string) []Problem {
	var found []Problem
	visit(reflect.ValueOf(block), path, func(field string, check func(report)) {
		check(func(below, format string, args ...any) {
			found = append(found, Problem{Field: field, Below: below, Message: fmt.Sprintf(format, args...)})
		})
	})
	return found
}

// isOwn reports whether the API has the type: only these are searched for parts of pods.
func isOwn(kind reflect.Type) bool {
	return slices.Contains([]string{
		reflect.TypeFor[v1.ClusterPolicySpec]().PkgPath(), reflect.TypeFor[v1alpha1.NVIDIADriverSpec]().PkgPath(),
	}, kind.PkgPath())
}

// visit calls check for each part of a pod in the value, with its path and its rule.
func visit(value reflect.Value, path string, check func(field string, rule func(report))) {
	if value.Kind() == reflect.Pointer {
		if !value.IsNil() {
			visit(value.Elem(), path, check)
		}
		return
	}
	if rule := ruleOf(value, path[strings.LastIndex(path, ".")+1:]); rule != nil {
		check(path, rule)
		return
	}
	switch value.Kind() {
	case reflect.Slice:
		for i := range value.Len() {
			visit(value.Index(i), fmt.Sprintf("%s[%d]", path, i), check)
		}
	case reflect.Struct:
		if isOwn(value.Type()) {
			visitFields(value, path, check)
		}
	default:
	}
}

func visitFields(value reflect.Value, path string, check func(field string, rule func(report))) {
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		below := path
		if name != "" {
			below += "." + name
		}
		visit(value.Field(i), below, check)
	}
}

// ruleOf returns the rule for a part of a pod, nil if the value is none. name is that of its field.
func ruleOf(value reflect.Value, name string) func(report) {
	switch part := value.Interface().(type) {
	case v1.ResourceRequirements:
		return func(found report) { checkResources(part, found) }
	case v1.EnvVar:
		return func(found report) { checkVariable(part, found) }
	case []corev1.Toleration:
		return func(found report) { checkTolerations(part, found) }
	case corev1.PodSecurityContext:
		return func(found report) { checkSecurityContext(part, found) }
	case v1.ProbeSpec:
		return func(found report) { checkProbe(part, name, found) }
	case v1.Labels:
		return func(found report) { checkLabels(part.Strings(), found) }
	case v1.NodePoolSelector:
		return func(found report) { checkLabels(v1.Labels(part).Strings(), found) }
	case v1.Annotations:
		return func(found report) { checkAnnotations(part.Strings(), found) }
	case v1.StartupTaint:
		return func(found report) { checkKey(part.Key, ".key", found) }
	case string:
		return ruleOfText(part, name)
	}
	return nil
}

// ruleOfText is ruleOf for a text.
func ruleOfText(part, name string) func(report) {
	switch {
	case names[name]:
		return func(found report) { checkName(part, found) }
	case name == podSelector:
		return func(found report) { checkSelector(part, found) }
	default:
		return nil
	}
}

// names are the fields with the name of an object that pods name as well.
var names = map[string]bool{"priorityClassName": true, "secretEnv": true}

// podSelector is the name of the fields with a label selector for pods.
const podSelector = "podSelector"
