package effective

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// normalise gives the values that NVIDIA's operator accepts in several forms the one that operands expect: of variables
// with the same name only the last one is kept, and an unknown pull policy means IfNotPresent. A number in quotes is
// the number, and an empty number or percentage is absent.
func normalise(spec *v1.ClusterPolicySpec) {
	forEach(spec, func(_ *place, env *[]v1.EnvVar) {
		if len(*env) > 0 {
			*env = lastOfEachName(*env)
		}
	})
	forEach(spec, func(_ *place, image *v1.ImageSpec) {
		if !IsPullPolicy(image.ImagePullPolicy) {
			image.ImagePullPolicy = corev1.PullIfNotPresent
		}
	})
	forEach(spec, func(_ *place, field **intstr.IntOrString) { *field = number(*field) })
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
	forEach(spec, func(at *place, field **intstr.IntOrString) {
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
		visit(at.String(), given.String(), taken)
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
	forEach(spec, func(at *place, env *[]v1.EnvVar) {
		if len(*env) > 0 {
			visit(at.String(), env)
		}
	})
}

// ForEachImage calls visit for each image in the spec, with the block that has it, such as spec.driver.
func ForEachImage(spec *v1.ClusterPolicySpec, visit func(block string, image *v1.ImageSpec)) {
	forEach(spec, func(at *place, image *v1.ImageSpec) { visit(at.String(), image) })
}

// place is where a value of the spec is. Its text is composed on demand: most visits do not need it.
type place struct {
	above *place
	// key of the field in above; empty for the element of a list with this index.
	key   string
	index int
}

func (p *place) String() string {
	switch {
	case p.above == nil:
		return p.key
	case p.key == "":
		return fmt.Sprintf("%s[%d]", p.above, p.index)
	}
	return p.above.String() + "." + p.key
}

// forEach calls visit for each value of type T in the blocks of the API's own types that are set.
func forEach[T any](spec *v1.ClusterPolicySpec, visit func(at *place, value *T)) {
	walk(reflect.ValueOf(spec).Elem(), &place{key: "spec"}, reflect.TypeFor[T](), func(at *place, value reflect.Value) {
		if found, is := value.Addr().Interface().(*T); is {
			visit(at, found)
		}
	})
}

func walk(in reflect.Value, at *place, wanted reflect.Type, visit func(*place, reflect.Value)) {
	if in.Type() == wanted {
		visit(at, in)
		return
	}
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			walk(in.Elem(), at, wanted, visit)
		}
	case reflect.Slice:
		for i := range in.Len() {
			walk(in.Index(i), &place{above: at, index: i}, wanted, visit)
		}
	case reflect.Struct:
		for _, field := range fieldsOf(in.Type()) {
			below := at
			if field.key != "" {
				below = &place{above: at, key: field.key}
			}
			walk(in.Field(field.index), below, wanted, visit)
		}
	default:
	}
}

// ownField is a field of one of the API's own types that may have other values.
type ownField struct {
	index int
	// key in JSON; empty for an embedded type.
	key string
}

// known are the fields of the types that have been walked: to read their tags takes most of the time of a walk.
var known sync.Map

func fieldsOf(of reflect.Type) []ownField {
	if found, is := known.Load(of); is {
		if fields, are := found.([]ownField); are {
			return fields
		}
	}
	var fields []ownField
	if of.PkgPath() == reflect.TypeFor[v1.ClusterPolicySpec]().PkgPath() {
		for i := range of.NumField() {
			key, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if options == "inline" {
				key = ""
			}
			fields = append(fields, ownField{index: i, key: key})
		}
	}
	known.Store(of, fields)
	return fields
}
