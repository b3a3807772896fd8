package specgen_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

func fields(t *testing.T) []specgen.Field {
	t.Helper()
	all, err := specgen.Fields()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 400 {
		t.Fatalf("only %d fields: the walk misses some", len(all))
	}
	return all
}

// Each field has values, which match its enum and pattern.
func TestValuesFit(t *testing.T) {
	for _, field := range fields(t) {
		values := field.Values()
		if len(values) == 0 && field.String() != "containerResources[].name" {
			if field.Name() != "name" {
				t.Errorf("%s has no example", field)
			}
			continue
		}
		for _, value := range values {
			text, isText := value.(string)
			if isText && field.Schema.Pattern != "" && !regexp.MustCompile(field.Schema.Pattern).MatchString(text) {
				t.Errorf("%s: %q does not match %s", field, text, field.Schema.Pattern)
			}
			decode(t, field.Spec(value))
		}
	}
}

func TestRandomSpecsAreOfTheAPI(t *testing.T) {
	all := fields(t)
	sizes := map[int]bool{}
	for seed := range uint64(100) {
		spec := specgen.Random(rand.New(rand.NewPCG(seed, 0)), all)
		decode(t, spec)
		sizes[len(spec)] = true
	}
	if len(sizes) < 5 {
		t.Errorf("specs of %d sizes only", len(sizes))
	}
}

func decode(t *testing.T, spec map[string]any) {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &v1.ClusterPolicySpec{}); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}
