package render_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// blocks are the optional blocks of the spec, by their JSON keys.
func blocks() []string {
	var keys []string
	for i := range reflect.TypeFor[v1.ClusterPolicySpec]().NumField() {
		field := reflect.TypeFor[v1.ClusterPolicySpec]().Field(i)
		if field.Type.Kind() != reflect.Pointer || field.Type.Elem().Kind() != reflect.Struct {
			continue // A switch of its own, which has no empty value but its default.
		}
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

func decodeSpec(t *testing.T, text string) v1.ClusterPolicySpec {
	t.Helper()
	spec := v1.ClusterPolicySpec{}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return spec
}

// rendered returns the objects of a spec as JSON, by operand.
func rendered(t *testing.T, spec v1.ClusterPolicySpec) map[operand.Name]string {
	t.Helper()
	texts := map[operand.Name]string{}
	for name, objects := range (situation{spec: spec}).objects(t) {
		data, err := json.Marshal(objects)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	return texts
}

// A block that is omitted, null or empty means the same: every combination renders the same as an empty spec, and none
// panics. -short tries one in eight, which chance selects.
func TestEmptyBlocksMeanTheDefaults(t *testing.T) {
	want := rendered(t, v1.ClusterPolicySpec{})
	keys := blocks()
	combinations := 1 << min(len(keys), 9)
	for _, chosen := range chance.Numbers(t, t.Name(), combinations, combinations/8) {
		var empty, null []string
		for i, key := range keys {
			if chosen&(1<<i) != 0 {
				empty = append(empty, `"`+key+`":{}`)
				continue
			}
			null = append(null, `"`+key+`":null`)
		}
		text := "{" + strings.Join(append(empty, null...), ",") + "}"
		if got := rendered(t, decodeSpec(t, text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s renders differently from an empty spec", text)
		}
	}
	// Whatever the number of blocks: each one alone, and all together.
	all := make([]string, 0, len(keys))
	for _, key := range keys {
		all = append(all, `"`+key+`":{}`)
		for _, text := range []string{`{"` + key + `":{}}`, `{"` + key + `":null}`} {
			if got := rendered(t, decodeSpec(t, text)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s renders differently from an empty spec", text)
			}
		}
	}
	if got := rendered(t, decodeSpec(t, "{"+strings.Join(all, ",")+"}")); !reflect.DeepEqual(got, want) {
		t.Error("all blocks empty render differently from an empty spec")
	}
}

// As above, for nested blocks.
func TestEmptyInnerBlocksMeanTheDefaults(t *testing.T) {
	want := rendered(t, v1.ClusterPolicySpec{})
	walkBlocks(reflect.TypeFor[v1.ClusterPolicySpec](), nil, func(path []string) {
		for _, value := range []string{"{}", "null"} {
			text := value
			for i := range path {
				text = `{"` + path[len(path)-1-i] + `":` + text + `}`
			}
			t.Run(text, func(t *testing.T) {
				if got := rendered(t, decodeSpec(t, text)); !reflect.DeepEqual(got, want) {
					t.Errorf("renders differently from an empty spec")
				}
			})
		}
	})
}

// walkBlocks visits the path of every pointer to a struct, including those in inline structs.
func walkBlocks(in reflect.Type, path []string, visit func([]string)) {
	for i := range in.NumField() {
		field := in.Field(i)
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "inline" {
			walkBlocks(field.Type, path, visit)
			continue
		}
		if field.Type.Kind() != reflect.Pointer || field.Type.Elem().Kind() != reflect.Struct ||
			!strings.HasSuffix(field.Type.Elem().PkgPath(), "/api/v1") {
			continue
		}
		inner := append(append([]string{}, path...), key)
		visit(inner)
		if len(inner) < 6 {
			walkBlocks(field.Type.Elem(), inner, visit)
		}
	}
}
