package v1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The schema lists the stages a second time, as a marker of controller-gen cannot refer to code.
func TestTheSchemaHasTheStages(t *testing.T) {
	var want []string
	for _, stage := range v1.Stages() {
		want = append(want, `"`+string(stage)+`"`)
	}
	found := false
	walk("", readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s *apiextensionsv1.JSONSchemaProps) {
		if path != ".status.nodes[].stage" {
			return
		}
		found = true
		var got []string
		for _, value := range s.Enum {
			got = append(got, string(value.Raw))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", path, diff)
		}
	})
	if !found {
		t.Error("the schema has no stage of a node")
	}
}

func TestStagesAreOrdered(t *testing.T) {
	all := v1.Stages()
	for i, stage := range all {
		if got := stage.Index(); got != i {
			t.Errorf("%s has index %d, want %d", stage, got, i)
		}
		for j, other := range all {
			if got := stage.Before(other); got != (i < j) {
				t.Errorf("%s before %s: %t", stage, other, got)
			}
		}
	}
	if got := v1.Stage("").Index(); got != -1 {
		t.Errorf("the empty stage has index %d", got)
	}
	all[0] = "changed"
	if v1.Stages()[0] != v1.StageDiscovered {
		t.Error("a caller can change the stages")
	}
}
