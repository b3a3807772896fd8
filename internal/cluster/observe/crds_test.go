package observe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// While a CRD is being deleted, the API server rejects new objects of its kind.
func TestCRDsThatAreBeingDeletedDoNotCount(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	served := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "servicemonitors.monitoring.coreos.com"},
	}
	deleted := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: "prometheusrules.monitoring.coreos.com", DeletionTimestamp: new(metav1.Now()),
		Finalizers: []string{"customresourcecleanup.apiextensions.k8s.io"},
	}}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(served, deleted).Build()
	snapshot, err := observe.ReadSnapshot(t.Context(), reader, "gpu-operator")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"servicemonitors.monitoring.coreos.com": true}, snapshot.CRDs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
