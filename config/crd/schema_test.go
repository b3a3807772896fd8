package crd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// Dropped names properties as Missing does.
func TestDropped(t *testing.T) {
	const schema = `
properties:
  name: {type: string}
  block: {properties: {kept: {type: string}}}
  list: {items: {properties: {kept: {type: string}}}}
  labels: {additionalProperties: {type: string}}
  blocks: {additionalProperties: {properties: {kept: {type: string}}}}
  any: {additionalProperties: true}
  whole: {x-kubernetes-preserve-unknown-fields: true}
  bare: {type: object}
`
	tests := map[string]struct {
		value string
		want  []string
	}{
		"all that it has": {value: `{name: a, block: {kept: a}, list: [{kept: a}], labels: {a: b}, blocks: {a: {kept: a}}}`},
		"nothing":         {value: `{}`},
		"a property, and one of a block": {
			value: `{other: 1, name: a, block: {kept: a, lost: a}}`, want: []string{"spec.block.lost", "spec.other"},
		},
		"a property of two elements of a list": {
			value: `{list: [{lost: a}, {kept: a}, {lost: b}]}`, want: []string{"spec.list.lost"},
		},
		"a property of an entry of a map": {value: `{blocks: {a: {lost: a}}}`, want: []string{"spec.blocks.lost"}},
		"an object with any properties":   {value: `{any: {a: {b: c}}, whole: {a: {b: c}}}`},
		"an object without properties":    {value: `{bare: {a: b}}`, want: []string{"spec.bare.a"}},
		"an empty block":                  {value: `{other: {}}`, want: []string{"spec.other"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			parse := func(text string) map[string]any {
				object := map[string]any{}
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			if diff := cmp.Diff(
				test.want, crd.Dropped(parse(schema), parse(test.value), "spec."), cmpopts.EquateEmpty(),
			); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
