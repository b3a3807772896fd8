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

// Schema compares a CRD in the cluster with that of this operator: the API server silently drops fields that are
// missing from the CRD. Only the pass uses it; it is not safe for concurrent use.
type Schema struct {
	// Definition is the CRD of this operator.
	Definition crd.Definition
	// Cached reads the resource version of the CRD, and Live the whole CRD once that has changed.
	Cached, Live client.Reader

	// checkedVersion is the resource version of the last check.
	checkedVersion string
	missing        []string
	// spec is the schema of the spec in the cluster's CRD; nil if no field is missing.
	spec map[string]any
	// version changes with each change of the CRD.
	version string
}

// MissingFields returns the fields that are missing from the cluster's CRD, such as spec.global. With an error it
// returns those of the last check.
func (s *Schema) MissingFields(ctx context.Context) ([]string, error) { return s.check(ctx, s.Cached) }

// MissingFieldsLive is MissingFields for a CRD that the cache may not have yet.
func (s *Schema) MissingFieldsLive(ctx context.Context) ([]string, error) {
	return s.check(ctx, s.Live)
}

// DroppedFields returns the fields of the spec that are missing from the CRD, as of the last check. Any write of the
// policy loses them, also a write of its status.
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

// Version changes with each change of the CRD, as of the last check.
func (s *Schema) Version() string { return s.version }

// check compares the CRD, unless the reader returns the version of the last check.
func (s *Schema) check(ctx context.Context, reader client.Reader) ([]string, error) {
	key := client.ObjectKey{Name: s.Definition.Name}
	seen := CRDMetadata()
	if err := reader.Get(ctx, key, seen, client.UnsafeDisableDeepCopy); err != nil {
		return s.missing, fmt.Errorf("reading CustomResourceDefinition %s: %w", s.Definition.Name, err)
	}
	if s.checkedVersion != "" && seen.ResourceVersion == s.checkedVersion {
		return s.missing, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(seen.GroupVersionKind())
	if err := s.Live.Get(ctx, key, live); err != nil {
		return s.missing, fmt.Errorf("reading CustomResourceDefinition %s: %w", s.Definition.Name, err)
	}
	own, err := s.Definition.Own()
	if err != nil {
		return s.missing, err
	}
	schema := crd.SchemaOf(live.Object, s.Definition.Kind.Version)
	s.missing, s.spec = crd.Missing(own, schema), nil
	if len(s.missing) > 0 {
		s.spec = crd.Below(schema, specField)
	}
	s.checkedVersion, s.version = seen.ResourceVersion, fmt.Sprintf("%s %d", live.GetUID(), live.GetGeneration())
	return s.missing, nil
}

const specField = "spec"

// SpecFields returns the fields that belong to the spec. The loss of a status field is harmless.
func SpecFields(fields []string) []string {
	var found []string
	for _, field := range fields {
		if field == specField || strings.HasPrefix(field, specField+".") {
			found = append(found, field)
		}
	}
	return found
}
