package effective

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// normalise gives the values that NVIDIA's operator accepts in several forms the one that operands expect: of variables
// with the same name only the last one is kept, and an unknown pull policy means IfNotPresent. A number in quotes is
// the number, and an empty number or percentage is absent.
func normalise(spec *v1.ClusterPolicySpec) {
	ForEachEnv(spec, func(_ string, env *[]v1.EnvVar) { *env = lastOfEachName(*env) })
	ForEachImage(spec, func(_ string, image *v1.ImageSpec) {
		if !IsPullPolicy(image.ImagePullPolicy) {
			image.ImagePullPolicy = corev1.PullIfNotPresent
		}
	})
	forEach(reflect.ValueOf(spec), "spec", func(_ string, field **intstr.IntOrString) { *field = number(*field) })
}

// number returns the number or percentage of a field that has either; nil if it is absent or empty. "2" is the number.
//
// The schema refuses other texts, but earlier definitions, and that of NVIDIA's operator, have admitted them: a number
// beyond 32 bits means the largest one, a percentage above 100 means all, and what is neither is absent.
func number(field *intstr.IntOrString) *intstr.IntOrString {
	if field == nil {
		return nil
	}
	digits, isPercentage := strings.CutSuffix(field.String(), "%")
	count, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return nil
	}
	if isPercentage {
		return new(intstr.FromString(strconv.FormatInt(min(count, 100), 10) + "%"))
	}
	return new(intstr.FromInt32(int32(max(math.MinInt32, min(count, math.MaxInt32)))))
}

// ForEachMisread calls visit for each number or percentage of the spec whose text is neither, or is too large, with the
// field that has it and what it counts as; empty for the default.
func ForEachMisread(spec *v1.ClusterPolicySpec, visit func(field, given, taken string)) {
	forEach(reflect.ValueOf(spec), "spec", func(name string, field **intstr.IntOrString) {
		if *field == nil || (*field).String() == "" {
			return
		}
		given := intstr.Parse((*field).String())
		if _, err := intstr.GetScaledValueFromIntOrPercent(&given, 100, true); err == nil {
			return
		}
		taken := ""
		if number := number(*field); number != nil {
			taken = number.String()
		}
		visit(name, given.String(), taken)
	})
}

func lastOfEachName(env []v1.EnvVar) []v1.EnvVar {
	last := make(map[string]int, len(env))
	for i, variable := range env {
		last[variable.Name] = i
	}
	kept := make([]v1.EnvVar, 0, len(last))
	for i, variable := range env {
		if last[variable.Name] == i {
			kept = append(kept, variable)
		}
	}
	return kept
}

// IsPullPolicy reports whether Kubernetes has the pull policy, or it is empty.
func IsPullPolicy(policy corev1.PullPolicy) bool {
	return slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullNever, corev1.PullIfNotPresent}, policy)
}

// ForEachEnv calls visit for each list of variables in the spec that is not empty, with the field that has it, such as
// spec.driver.env.
func ForEachEnv(spec *v1.ClusterPolicySpec, visit func(field string, env *[]v1.EnvVar)) {
	forEach(reflect.ValueOf(spec), "spec", func(field string, env *[]v1.EnvVar) {
		if len(*env) > 0 {
			visit(field, env)
		}
	})
}

// ForEachImage calls visit for each image in the spec, with the block that has it, such as spec.driver.
func ForEachImage(spec *v1.ClusterPolicySpec, visit func(block string, image *v1.ImageSpec)) {
	forEach(reflect.ValueOf(spec), "spec", visit)
}

// forEach calls visit for each value of type T in the blocks of the API's own types that are set.
func forEach[T any](in reflect.Value, path string, visit func(path string, value *T)) {
	if in.CanAddr() {
		if found, is := in.Addr().Interface().(*T); is {
			visit(path, found)
			return
		}
	}
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			forEach(in.Elem(), path, visit)
		}
	case reflect.Slice:
		for i := range in.Len() {
			forEach(in.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Struct:
		if in.Type().PkgPath() != reflect.TypeFor[v1.ClusterPolicySpec]().PkgPath() {
			return
		}
		for i := range in.NumField() {
			key, options, _ := strings.Cut(in.Type().Field(i).Tag.Get("json"), ",")
			below := path + "." + key
			if options == "inline" {
				below = path
			}
			forEach(in.Field(i), below, visit)
		}
	default:
	}
}
