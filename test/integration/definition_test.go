package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAnOutdatedDefinitionIsTold: the cluster has a definition without one of the operator's fields. The
// policy says so, with the command that cures it, and no longer once the definition is renewed.
func TestAnOutdatedDefinitionIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(crd.Name)
	b.Expect(b.client.Patch(t.Context(), definition, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/gdrcopy"},
			{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"}]`)))).To(Succeed())
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	conditions := func() any { return b.policy().Status.Conditions }
	b.Eventually(conditions).Should(ContainElement(And(HaveField("Type", v1.ConditionCRDOutdated),
		HaveField("Message", And(ContainSubstring("drops spec.gdrcopy from policies"), ContainSubstring("kubectl apply --server-side"))))))
	b.Expect(b.client.Patch(t.Context(), definition, client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	b.Eventually(conditions).ShouldNot(ContainElement(HaveField("Type", v1.ConditionCRDOutdated)))
}
