package install

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestServerSideApplyAfterKubectlApply: what kubectl apply has created, kubectl apply --server-side of the same
// manifests takes over without a conflict. The first is the owner of the fields as the API server has stored them, with
// their defaults where a field is one value.
func TestServerSideApplyAfterKubectlApply(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	live := cluster.NewClient(t, cluster.StartFor(t, cluster.Options{Version: cluster.Newest, Bare: true}).Config)
	objects, err := config.Build("../../config/default")
	g.Expect(err).NotTo(HaveOccurred())
	applied := map[string]bool{}
	for _, namespacesOnly := range []bool{true, false} {
		for _, object := range objects {
			if (object.GetKind() == "Namespace") != namespacesOnly {
				continue
			}
			created := object.DeepCopy()
			err := live.Create(t.Context(), created, client.FieldOwner("kubectl-client-side-apply"))
			g.Expect(client.IgnoreAlreadyExists(err)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			applying := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
			err = live.Apply(t.Context(), applying, client.FieldOwner("kubectl"))
			g.Expect(apierrors.IsConflict(err)).To(BeFalse(), "%s %s: %v", object.GetKind(), object.GetName(), err)
			g.Expect(err).NotTo(HaveOccurred())
			applied[object.GetKind()] = true
		}
	}
	g.Expect(applied).To(And(HaveKey("Deployment"), HaveKey("CustomResourceDefinition")))
}
