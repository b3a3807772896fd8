package schemacheck_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
)

// definition has a version without a schema before the one that is checked.
const definition = `
metadata: {name: things.example.com}
spec:
  versions:
  - {name: v1alpha1}
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          status: {type: object, required: [phase], properties: {phase: {type: string}}}
          spec:
            type: object
            required: [mode]
            properties:
              mode: {type: string, enum: [a, b]}
              size: {type: integer, maximum: 9}
              short: {type: string, maxLength: 2}
              items:
                type: array
                maxItems: 2
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}}
            x-kubernetes-validations:
            - {rule: "!has(self.size) || self.size != 5", message: not five}
`

func decoded(g Gomega, text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON([]byte("{apiVersion: example.com/v1, kind: Thing, " + text + "}"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(object.UnmarshalJSON(encoded)).To(Succeed())
	return object
}

func TestCheck(t *testing.T) {
	const named = "metadata: {name: a}, "
	for name, test := range map[string]struct {
		object           string
		refused, dropped []string
		rulesSkipped     bool
	}{
		"valid":                 {object: named + "spec: {mode: a, size: 9, items: [{name: x}, {name: w}]}"},
		"a generated name":      {object: "metadata: {generateName: a-}, spec: {mode: a}"},
		"no name":               {object: "spec: {mode: a}", refused: []string{"metadata.name"}, rulesSkipped: true},
		"a status":              {object: named + "spec: {mode: a}, status: {other: 1}"},
		"a null, which is none": {object: named + "spec: {mode: a, size: null}"},
		"a wrong prefix": {
			object: "metadata: {generateName: A-}, spec: {mode: a}", refused: []string{"metadata.name"},
		},
		"a wrong name, and a prefix": {
			object: "metadata: {name: A, generateName: a-}, spec: {mode: a}", refused: []string{"metadata.name"},
		},
		"unknown fields": {
			object:  "metadata: {name: a, nam: b}, spec: {mode: a, sizes: 1, items: [{name: x, names: w}]}",
			dropped: []string{"metadata.nam", "spec.sizes", "spec.items[0].names"},
		},
		"a broken rule": {object: named + "spec: {mode: a, size: 5}", refused: []string{"spec"}},
		"a bound":       {object: named + "spec: {mode: a, size: 10}", refused: []string{"spec.size"}},
		"a broken rule, and a key that is not unique": {
			object:  named + "spec: {mode: a, size: 5, items: [{name: x}, {name: x}]}",
			refused: []string{"spec.items[1]", "spec"},
		},
		"metadata of another type": {
			object: "metadata: {name: a, labels: {b: 5}}, spec: {size: 5}", refused: []string{"metadata"}, rulesSkipped: true,
		},
		"another value than the schema has": {
			object: named + "spec: {mode: c, size: 5}", refused: []string{"spec.mode"}, rulesSkipped: true,
		},
		"a missing field": {object: named + "spec: {size: 5}", refused: []string{"spec.mode"}, rulesSkipped: true},
		"another type":    {object: named + "spec: {mode: a, size: x}", refused: []string{"spec.size"}, rulesSkipped: true},
		"too long": {
			object: named + "spec: {mode: a, size: 5, short: abc}", refused: []string{"spec.short"}, rulesSkipped: true,
		},
		"too many": {
			object:  named + "spec: {mode: a, size: 5, items: [{name: x}, {name: w}, {name: z}]}",
			refused: []string{"spec.items"}, rulesSkipped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := decoded(g, test.object)
			before := object.DeepCopy()
			checker, err := schemacheck.New([]byte(definition), "v1")
			g.Expect(err).NotTo(HaveOccurred())
			found := checker.Check(t.Context(), object)
			var refused []string
			for _, problem := range found.Refused {
				refused = append(refused, problem.Field)
			}
			g.Expect(refused).To(Equal(test.refused), "%v", found.Refused)
			g.Expect(found.Dropped).To(ConsistOf(test.dropped))
			g.Expect(found.RulesSkipped).To(Equal(test.rulesSkipped))
			g.Expect(object).To(Equal(before), "the object is not changed")
		})
	}
}

func TestWrongDefinitions(t *testing.T) {
	schemaOf := func(text string) string {
		return "{metadata: {name: x}, spec: {versions: [{name: v1, schema: {openAPIV3Schema: " + text + "}}]}}"
	}
	for name, test := range map[string]struct{ text, version, want string }{
		"no definition":   {"5", "v1", "decoding the CustomResourceDefinition: "},
		"another version": {definition, "v2", "CustomResourceDefinition things.example.com has no version v2 with a schema"},
		"no schema": {
			definition, "v1alpha1", "CustomResourceDefinition things.example.com has no version v1alpha1 with a schema",
		},
		"a reference": {schemaOf("{$ref: other}"), "v1", "compiling the schema: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schemacheck.New([]byte(test.text), test.version)
			NewWithT(t).Expect(err).To(MatchError(HavePrefix(test.want)))
		})
	}
}
