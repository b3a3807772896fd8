package controller_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mutant is an object that differs from another in one field, which is at this path.
type mutant[T client.Object] struct {
	path   string
	object T
}

// mutants returns copies of the object that each differ from it in one field: without each field that its JSON has, and
// with other values of its type. Those that are no object of the type, or equal to it, are left out.
func mutants[T client.Object](object T) []mutant[T] {
	var tree any
	data, err := json.Marshal(object)
	must(err)
	must(json.Unmarshal(data, &tree))
	var found []mutant[T]
	walk("", tree, func(path string, changed any) {
		text, err := json.Marshal(changed)
		must(err)
		copied := as[T](reflect.New(reflect.TypeOf(object).Elem()).Interface())
		if json.Unmarshal(text, copied) == nil && !equality.Semantic.DeepEqual(copied, object) {
			found = append(found, mutant[T]{path, copied})
		}
	})
	return found
}

// walk calls change with the tree in which one field differs, for each field and each of its other values.
func walk(path string, tree any, change func(path string, changed any)) {
	switch of := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(of)) {
			without := maps.Clone(of)
			delete(without, key)
			change(path+"/"+key, without)
			walk(path+"/"+key, of[key], func(path string, changed any) {
				with := maps.Clone(of)
				with[key] = changed
				change(path, with)
			})
		}
	case []any:
		for i := range of {
			change(path+"/"+strconv.Itoa(i), slices.Delete(slices.Clone(of), i, i+1))
			walk(fmt.Sprintf("%s/%d", path, i), of[i], func(path string, changed any) {
				with := slices.Clone(of)
				with[i] = changed
				change(path, with)
			})
		}
	default:
		for _, other := range otherValues(of) {
			change(path, other)
		}
	}
}

// otherValues returns values that a field may have in place of this one.
func otherValues(value any) []any {
	switch of := value.(type) {
	case bool:
		return []any{!of}
	case float64:
		return []any{of + 1, 0}
	case string:
		return otherTexts(of)
	}
	return nil
}

// otherTexts returns texts in place of this one: of the same set if it is of one that is known.
func otherTexts(text string) []any {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return []any{at.Add(-time.Hour).Format(time.RFC3339), at.Add(time.Hour).Format(time.RFC3339)}
	}
	for _, set := range [][]any{{"True", "False", "Unknown"}, {"success", "pending", "failed", "rebooting", ""}} {
		if slices.Contains(set, any(text)) {
			return set
		}
	}
	return []any{"", "x", "1", "true", "false"}
}
