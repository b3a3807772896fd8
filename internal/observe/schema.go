package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// Schema compares the ClusterPolicy's definition in the cluster with the one that this operator was made
// with: the API server drops fields that its definition lacks, without a word. Only the pass uses it, and
// passes do not overlap.
type Schema struct {
	// Cached tells cheaply whether the definition has changed, and Live reads all of it.
	Cached, Live client.Reader

	// looked is the resource version that lacking is about.
	looked  string
	lacking []string
}

// Lacking are the fields of this operator's definition that the cluster's lacks, such as spec.global.
// With an error come those that were found last.
func (s *Schema) Lacking(ctx context.Context) ([]string, error) {
	key := client.ObjectKey{Name: crd.Name}
	seen := Definition()
	if err := s.Cached.Get(ctx, key, seen, client.UnsafeDisableDeepCopy); err != nil {
		return s.lacking, fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.Name, err)
	}
	if s.looked != "" && seen.ResourceVersion == s.looked {
		return s.lacking, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(seen.GroupVersionKind())
	if err := s.Live.Get(ctx, key, live); err != nil {
		return s.lacking, fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.Name, err)
	}
	own := map[string]any{}
	if err := yaml.Unmarshal(crd.ClusterPolicy, &own); err != nil {
		return s.lacking, fmt.Errorf("decoding the definition that the operator was built with: %w", err)
	}
	s.lacking = lacking(schemaOf(own), schemaOf(live.Object), "")
	s.looked = seen.ResourceVersion
	return s.lacking, nil
}

// schemaOf is the schema of the version v1 in a definition; nil if there is none.
func schemaOf(definition map[string]any) map[string]any {
	// What is malformed has no versions, and lacks everything.
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, candidate := range versions {
		version, isMap := candidate.(map[string]any)
		if isMap && version["name"] == "v1" {
			schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
			return schema
		}
	}
	return nil
}

// lacking are the properties of one schema that another has not, sorted; nothing below a missing one.
func lacking(own, live map[string]any, path string) []string {
	if live["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	has := below(live, "properties")
	var missing []string
	properties := below(own, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if has[name] == nil {
			missing = append(missing, path+name)
			continue
		}
		missing = append(missing, lacking(below(properties, name), below(has, name), path+name+".")...)
	}
	for _, element := range []string{"items", "additionalProperties"} {
		if inner := below(own, element); inner != nil {
			missing = append(missing, lacking(inner, below(live, element), path)...)
		}
	}
	return missing
}

func below(in map[string]any, key string) map[string]any {
	inner, _ := in[key].(map[string]any)
	return inner
}
