package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// plain returns the value as decoded from JSON, so that values of tables and objects can be compared.
func plain(t *testing.T, value any) any {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var result any
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// show formats the value for a message.
func show(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

// nothing reports whether a value is absent, empty or false.
func nothing(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

// matches reports whether found has everything expected.
func matches(expected, found any) bool {
	switch want := expected.(type) {
	case nil:
		return nothing(found)
	case map[string]any:
		have, isMap := found.(map[string]any)
		for key, value := range want {
			if !isMap || !matches(value, have[key]) {
				return false
			}
		}
		return isMap
	case []any:
		have, isList := found.([]any)
		if !isList || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], have[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(expected, found)
	}
}

// has reports whether a list has the element, or a string the substring.
func has(found any, part string) bool {
	switch value := found.(type) {
	case string:
		return strings.Contains(value, part)
	case []any:
		return slices.Contains(value, any(part))
	default:
		return false
	}
}

// judge returns what is wrong with found; empty if nothing is. other is the value at the other place.
func (r row) judge(found, other any) string {
	if r.OrAbsent && nothing(found) {
		return ""
	}
	switch {
	case r.Absent, r.Present:
		return unless(nothing(found) == r.Absent, map[bool]string{true: "nothing", false: "something"}[r.Absent], found)
	case r.Exactly != nil:
		return unless(reflect.DeepEqual(r.Exactly, found), "exactly "+show(r.Exactly), found)
	case r.OneOf != nil:
		return unless(slices.ContainsFunc(r.OneOf, func(value any) bool { return reflect.DeepEqual(value, found) }),
			"one of "+show(r.OneOf), found)
	case r.Count != nil:
		list, isList := found.([]any)
		return unless(isList && len(list) == *r.Count, fmt.Sprintf("%d elements", *r.Count), found)
	case r.Contains != nil:
		missing := slices.DeleteFunc(slices.Clone(r.Contains), func(part string) bool { return has(found, part) })
		return unless(len(missing) == 0, "also "+show(missing), found)
	case r.Excludes != nil:
		excess := slices.DeleteFunc(slices.Clone(r.Excludes), func(part string) bool { return !has(found, part) })
		return unless(len(excess) == 0, "none of "+show(excess), found)
	case r.Expect != nil:
		return unless(matches(r.Expect, found) && !r.tooMuch(found), show(r.Expect), found)
	default:
		return r.compare(found, other)
	}
}

// compare compares with the value at the other place.
func (r row) compare(found, other any) string {
	if r.SameAs != nil {
		return unless(reflect.DeepEqual(found, other), fmt.Sprintf("as in %+v: %s", *r.SameAs, show(other)), found)
	}
	return unless(!reflect.DeepEqual(found, other), fmt.Sprintf("different from %+v: %s", *r.DiffersFrom, show(other)),
		found)
}

// tooMuch reports whether a mount propagates to the host without the table expecting it.
func (r row) tooMuch(found any) bool {
	want, _ := r.Expect.(map[string]any)
	have, _ := found.(map[string]any)
	return want["propagation"] == nil && have["propagation"] == "Bidirectional"
}

func unless(holds bool, expected string, found any) string {
	if holds {
		return ""
	}
	return "expected " + expected + ", found " + show(found)
}

func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		row   row
		found any
		right bool
	}{
		"field":                 {row{Expect: map[string]any{"a": "1"}}, map[string]any{"a": "1", "b": "2"}, true},
		"other field":           {row{Expect: map[string]any{"a": "1"}}, map[string]any{"a": "2"}, false},
		"null is false":         {row{Expect: map[string]any{"a": nil}}, map[string]any{"a": false}, true},
		"null is not true":      {row{Expect: map[string]any{"a": nil}}, map[string]any{"a": true}, false},
		"no map":                {row{Expect: map[string]any{"a": nil}}, nil, false},
		"longer list":           {row{Expect: []any{"a"}}, []any{"a", "b"}, false},
		"whole":                 {row{Exactly: map[string]any{"a": "1"}}, map[string]any{"a": "1", "b": "2"}, false},
		"one of is none":        {row{OneOf: []any{"x", nil}}, nil, true},
		"one of is not empty":   {row{OneOf: []any{"x"}}, "", false},
		"substring":             {row{Contains: []string{"b"}}, "abc", true},
		"element":               {row{Contains: []string{"b"}}, []any{"abc"}, false},
		"excludes":              {row{Excludes: []string{"b"}}, []any{"a", "b"}, false},
		"absent":                {row{Absent: true}, "x", false},
		"absent or as expected": {row{Contains: []string{"x"}, OrAbsent: true}, nil, true},
		"propagates to the host": {
			row{Expect: map[string]any{"hostPath": "/a"}}, map[string]any{"hostPath": "/a", "propagation": "Bidirectional"},
			false,
		},
		"propagates as expected": {
			row{Expect: map[string]any{"propagation": "Bidirectional"}}, map[string]any{"propagation": "Bidirectional"}, true,
		},
		"no expectation":         {row{Expect: "x"}, nil, false},
		"present":                {row{Present: true}, "", false},
		"the same":               {row{SameAs: &elsewhere{}}, nil, true},
		"not another":            {row{DiffersFrom: &elsewhere{}}, nil, false},
		"number of the elements": {row{Count: new(2)}, []any{"a"}, false},
	} {
		if problem := c.row.judge(c.found, nil); (problem == "") != c.right {
			t.Errorf("%s: %q", name, problem)
		}
	}
}

// Rows and tables that check nothing are reported.
func TestDefects(t *testing.T) {
	scenarios := map[string]scenario{"default": {}}
	sound := row{ID: "a", Operand: "driver", Scenario: "default", What: "name", Expect: "x", Source: "s"}
	if defect := sound.defect(scenarios); defect != "" {
		t.Errorf("a sound row has a defect: %s", defect)
	}
	for name, spoil := range map[string]func(*row){
		"no id":                  func(r *row) { r.ID = "" },
		"no source":              func(r *row) { r.Source = "" },
		"no operand":             func(r *row) { r.Operand = "" },
		"unknown what":           func(r *row) { r.What = "color" },
		"no expectation":         func(r *row) { r.Expect = nil },
		"two expectations":       func(r *row) { r.Absent = true },
		"unknown scenario":       func(r *row) { r.Scenario = "other" },
		"unknown scenario there": func(r *row) { r.Expect, r.SameAs = nil, &elsewhere{Scenario: "other"} },
	} {
		spoiled := sound
		spoil(&spoiled)
		if spoiled.defect(scenarios) == "" {
			t.Errorf("%s is not noticed", name)
		}
	}
	unknown := []byte("rows: [{id: a, colour: red}]")
	if err := yaml.UnmarshalStrict(unknown, &table{}); err == nil {
		t.Error("an unknown field is not noticed")
	}
	unused := table{Scenarios: map[string]scenario{"default": {}, "idle": {}}, Rows: []row{sound, sound}}
	if defects := unused.defects(); len(defects) != 2 {
		t.Errorf("a duplicate row and an unused scenario give %q", defects)
	}
}
