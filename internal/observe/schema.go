package observe

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	own, err := crd.Own()
	if err != nil {
		return s.lacking, err
	}
	s.lacking = crd.Lacking(own, crd.Schema(live.Object))
	s.looked = seen.ResourceVersion
	return s.lacking, nil
}
