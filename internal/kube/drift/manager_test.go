package drift

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestManagerOf(t *testing.T) {
	image := Path{
		keySegment("spec"),
		keySegment("containers"),
		elementSegment("name", map[string]any{"name": "main"}),
		keySegment("image"),
	}
	argument := Path{keySegment("spec"), keySegment("args"), {text: "[0]"}}
	tests := map[string]struct {
		field  Path
		fields string
		want   string
	}{
		"the leaf": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{}}}}}`,
			"other",
		},
		"another leaf": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:args":{}}}}}`,
			"",
		},
		"another container": {
			image,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"side\"}":{"f:image":{}}}}}`,
			"",
		},
		"a list that is one value":  {argument, `{"f:spec":{"f:args":{}}}`, "other"},
		"a set whose elements vary": {argument, `{"f:spec":{"f:args":{"v:\"x\"":{}}}}`, ""},
		"no fields":                 {image, `{}`, ""},
		"not JSON":                  {image, `x`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			entries := []metav1.ManagedFieldsEntry{
				{Manager: "empty"}, {Manager: "gpu-operator", FieldsV1: metav1.NewFieldsV1(test.fields)},
				{Manager: "other", FieldsV1: metav1.NewFieldsV1(test.fields)},
			}
			NewWithT(t).Expect(ManagerOf(test.field, entries)).To(Equal(test.want))
		})
	}
}
