package undecodable

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// Quantity is the pattern of the quantities in the schemas of this release: at most 20 digits on each side of the
// point, and an exponent of at most 18, as Kubernetes counts nothing beyond 2^63.
const Quantity = mantissa + `([KMGTPE]i|[numkMGTPE]|[eE][+-]?(0?[0-9]|1[0-8]))?$`

// QuantityBounds are the bounds of Quantity in words, for messages.
const QuantityBounds = "at most 20 digits on each side of the point and an exponent of at most 18"

const mantissa = `^[+-]?([0-9]{1,20}([.][0-9]{0,20})?|[.][0-9]{1,20})`

// decodable matches the quantities that are decoded: also exponents up to 99, which the CRD of NVIDIA's operator
// admits. The time that Kubernetes' decoder takes grows with the value of the exponent, without a bound.
var decodable = regexp.MustCompile(mantissa + `([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// Problem is a field that cannot be decoded.
type Problem struct {
	// Path of the field, such as spec.driver.upgradePolicy.maxUnavailable.
	Path string
	// Cause has the value, and what the type takes.
	Cause string
}

func (p Problem) String() string { return p.Path + " " + p.Cause }

// checker collects the problems of one value.
type checker struct{ problems []Problem }

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// prune removes from a decoded JSON value, whose numbers are json.Number, what the type cannot take. An element of a
// list is removed with the list, as the others may mean something else without it. It reports whether the value itself
// must be removed.
func (c *checker) prune(of reflect.Type, value any, path string) (remove bool) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if reflect.PointerTo(of).Implements(unmarshalerType) {
		return c.try(of, value, path)
	}
	switch of.Kind() {
	case reflect.Struct:
		return c.pruneStruct(of, value, path)
	case reflect.Map:
		return c.pruneMap(of, value, path)
	case reflect.Slice:
		if list, isList := value.([]any); isList {
			return c.pruneList(of, list, path)
		}
	}
	return c.try(of, value, path)
}

func (c *checker) pruneStruct(of reflect.Type, value any, path string) (remove bool) {
	fields, isMap := value.(map[string]any)
	if !isMap {
		return c.try(of, value, path)
	}
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
			c.prune(field.Type, value, path)
			continue
		}
		if inner, has := fields[name]; has && inner != nil && c.prune(field.Type, inner, join(path, name)) {
			delete(fields, name)
		}
	}
	return false
}

func (c *checker) pruneMap(of reflect.Type, value any, path string) (remove bool) {
	entries, isMap := value.(map[string]any)
	if !isMap {
		return c.try(of, value, path)
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if entries[key] != nil && c.prune(of.Elem(), entries[key], fmt.Sprintf("%s[%s]", path, shorten(key))) {
			delete(entries, key)
		}
	}
	return false
}

func (c *checker) pruneList(of reflect.Type, list []any, path string) (remove bool) {
	for i, element := range list {
		if element != nil && c.prune(of.Elem(), element, fmt.Sprintf("%s[%d]", path, i)) {
			remove = true
		}
	}
	return remove
}

// try decodes a value that has no fields of its own, and reports whether that fails.
func (c *checker) try(of reflect.Type, value any, path string) (remove bool) {
	text, err := json.Marshal(value)
	if err == nil {
		err = decode(of, text)
	}
	if err == nil {
		return false
	}
	cause := fmt.Sprintf("is %s, which is not %s", shorten(string(text)), wanted(of))
	c.problems = append(c.problems, Problem{path, cause})
	return true
}

// decode decodes a JSON text as the clients do, except that it refuses quantities that take too long.
func decode(of reflect.Type, text []byte) error {
	if of == quantityType && string(text) != "null" && !decodable.MatchString(strings.Trim(string(text), `"`)) {
		return resource.ErrFormatWrong
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(of).Interface())
}

// wanted describes the values of a type.
func wanted(of reflect.Type) string {
	const numbers = "a whole number from %d to %d"
	switch kind := of.Kind(); {
	case of == quantityType:
		return "a quantity of " + QuantityBounds
	case of == intOrStringType:
		return fmt.Sprintf(numbers, math.MinInt32, math.MaxInt32) + " or a text"
	case of == durationType:
		return "a duration such as 10m, of at most 292 years"
	case kind == reflect.Int32:
		return fmt.Sprintf(numbers, math.MinInt32, math.MaxInt32)
	case kind == reflect.Int64, kind == reflect.Int:
		return "a whole number of 64 bits"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		return "a text"
	case kind == reflect.Slice:
		return "a list"
	case kind == reflect.Struct, kind == reflect.Map:
		return "a block of fields"
	}
	return "a " + of.Name()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxShown bounds what a message shows of a value, in bytes.
const maxShown = 40

func shorten(text string) string {
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "..."
	}
	return text
}
