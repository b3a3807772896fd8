package observe_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

func crdScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// ownCRD returns the CRD of this release, without some fields.
func ownCRD(t *testing.T, without ...[]string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON(crd.ClusterPolicy)
	if err != nil {
		t.Fatal(err)
	}
	liveCRD := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, liveCRD); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(liveCRD.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("%d versions: %v", len(versions), err)
	}
	for _, path := range without {
		inner := within(t, versions[0], "schema", "openAPIV3Schema")
		for _, name := range path[:len(path)-1] {
			if name == "[]" {
				inner = within(t, inner, "items")
				continue
			}
			inner = within(t, inner, "properties", name)
		}
		delete(within(t, inner, "properties"), path[len(path)-1])
	}
	if err := unstructured.SetNestedSlice(liveCRD.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	return liveCRD
}

func within(t *testing.T, value any, names ...string) map[string]any {
	t.Helper()
	for _, name := range names {
		inner, isMap := value.(map[string]any)
		if !isMap {
			t.Fatalf("no map at %s", name)
		}
		value = inner[name]
	}
	found, isMap := value.(map[string]any)
	if !isMap {
		t.Fatalf("no map at the end of %v", names)
	}
	return found
}

func TestMissingFields(t *testing.T) {
	tests := map[string]struct {
		without [][]string
		want    []string
	}{
		"the same CRD": {},
		"a block, and a field of another": {
			without: [][]string{{"spec", "gdrcopy"}, {"spec", "driver", "kernelModuleType"}},
			want:    []string{"spec.driver.kernelModuleType", "spec.gdrcopy"},
		},
		"a field of the elements of a list": {
			without: [][]string{{"spec", "driver", "env", "[]", "value"}},
			want:    []string{"spec.driver.env.value"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(crdScheme(t)).WithObjects(
				ownCRD(t, test.without...),
			).Build()
			schema := observe.Schema{Definition: crd.OfClusterPolicy(), Cached: reader, Live: reader}
			got, err := schema.MissingFieldsLive(t.Context())
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
			spec := v1.ClusterPolicySpec{
				GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}, Driver: &v1.DriverSpec{KernelModuleType: v1.KernelModuleOpen},
			}
			spec.Driver.Env = []v1.EnvVar{{Name: "A", Value: "b"}}
			dropped, err := schema.DroppedFields(spec)
			if diff := cmp.Diff(test.want, dropped); diff != "" || err != nil {
				t.Errorf("of a spec: %v, -want +got:\n%s", err, diff)
			}
			if dropped, err := schema.DroppedFields(v1.ClusterPolicySpec{}); len(dropped) > 0 || err != nil {
				t.Errorf("of an empty spec: %v, %v", dropped, err)
			}
		})
	}
}

func TestSpecFields(t *testing.T) {
	got := observe.SpecFields([]string{"spec", "spec.driver", "specific", "status.nodes"})
	if diff := cmp.Diff([]string{"spec", "spec.driver"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The whole CRD is read once for each of its changes.
func TestTheCRDIsReadWhenItChanges(t *testing.T) {
	old := ownCRD(t, []string{"spec", "gdrcopy"})
	cluster := fake.NewClientBuilder().WithScheme(crdScheme(t)).WithObjects(old).Build()
	live := &countingReader{Reader: cluster}
	schema := observe.Schema{Definition: crd.OfClusterPolicy(), Cached: cluster, Live: live}
	for range 3 {
		if got, err := schema.MissingFields(t.Context()); err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if live.reads != 1 {
		t.Errorf("%d reads of an unchanged CRD", live.reads)
	}
	updated := ownCRD(t)
	updated.SetResourceVersion(old.GetResourceVersion())
	if err := cluster.Update(t.Context(), updated); err != nil {
		t.Fatal(err)
	}
	if got, err := schema.MissingFields(t.Context()); err != nil || len(got) != 0 || live.reads != 2 {
		t.Errorf("after the update: %v, %v, %d reads", got, err, live.reads)
	}
}

type countingReader struct {
	client.Reader
	reads int
}

func (r *countingReader) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	r.reads++
	return r.Reader.Get(ctx, key, object, options...)
}
