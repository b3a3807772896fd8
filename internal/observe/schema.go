package observe

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// Schema compares the ClusterPolicy's definition in the cluster with the one that this operator was made
// with: the API server drops fields that its definition lacks, without a word. Only the pass uses it, and
// passes do not overlap.
type Schema struct {
	// Cached tells cheaply whether the definition has changed, and Live reads all of it.
	Cached, Live client.Reader

	// checkedVersion is the resource version that the rest is about.
	checkedVersion string
	missing        []string
	// spec is the schema of the spec in the cluster's definition; nil where that lacks no field.
	spec map[string]any
	// version is another one after each change of the definition.
	version string
}

// MissingFields are the fields of this operator's definition that the cluster's lacks, such as spec.global.
// With an error come those that were found last.
func (s *Schema) MissingFields(ctx context.Context) ([]string, error) { return s.check(ctx, s.Cached) }

// MissingFieldsLive is MissingFields of a definition that the cache may not show yet.
func (s *Schema) MissingFieldsLive(ctx context.Context) ([]string, error) {
	return s.check(ctx, s.Live)
}

// DroppedFields are the fields of the spec that the cluster's definition lacks, as that was looked at last. Any write of such a
// policy loses them, also one of its status.
func (s *Schema) DroppedFields(spec v1.ClusterPolicySpec) ([]string, error) {
	if len(s.missing) == 0 {
		return nil, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return nil, fmt.Errorf("converting the spec of a ClusterPolicy: %w", err)
	}
	return crd.Dropped(s.spec, content, specField+"."), nil
}

// Version is another one after each change of the definition, as that was looked at last.
func (s *Schema) Version() string { return s.version }

// check compares the definition, unless the reader shows the one that was looked at last.
func (s *Schema) check(ctx context.Context, reader client.Reader) ([]string, error) {
	key := client.ObjectKey{Name: crd.Name}
	seen := Definition()
	if err := reader.Get(ctx, key, seen, client.UnsafeDisableDeepCopy); err != nil {
		return s.missing, fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.Name, err)
	}
	if s.checkedVersion != "" && seen.ResourceVersion == s.checkedVersion {
		return s.missing, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(seen.GroupVersionKind())
	if err := s.Live.Get(ctx, key, live); err != nil {
		return s.missing, fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.Name, err)
	}
	own, err := crd.Own()
	if err != nil {
		return s.missing, err
	}
	schema := crd.Schema(live.Object)
	s.missing, s.spec = crd.Lacking(own, schema), nil
	if len(s.missing) > 0 {
		s.spec = crd.Below(schema, specField)
	}
	s.checkedVersion, s.version = seen.ResourceVersion, fmt.Sprintf("%s %d", live.GetUID(), live.GetGeneration())
	return s.missing, nil
}

const specField = "spec"

// SpecFields are those of the fields that a definition lacks which belong to the spec: losing one of the status harms nobody.
func SpecFields(fields []string) []string {
	var found []string
	for _, field := range fields {
		if field == specField || strings.HasPrefix(field, specField+".") {
			found = append(found, field)
		}
	}
	return found
}
