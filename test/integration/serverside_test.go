package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestListsOfVariablesHaveOneOwner: for server-side apply a list env is one value, as in NVIDIA's definition. Another
// owner's variables are a conflict, never merged, and --force-conflicts replaces them.
func TestListsOfVariablesHaveOneOwner(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{bare: true, timing: simulator.DefaultTiming()})
	apply := func(owner, spec string, options ...client.ApplyOption) error {
		object := &unstructured.Unstructured{}
		e.Expect(yaml.Unmarshal([]byte("{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: cluster-policy}, "+
			"spec: "+spec+"}"), &object.Object)).To(Succeed())
		return e.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
			append(options, client.FieldOwner(owner))...)
	}
	const first = `{driver: {env: [{name: A, value: "1"}]}, toolkit: {env: [{name: A, value: "1"}]}}`
	e.Expect(apply("platform-team", first)).To(Succeed())
	err := apply("gpu-team", `{driver: {env: [{name: B, value: "2"}]}}`)
	e.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	e.Expect(err).To(MatchError(And(ContainSubstring(`conflict with "platform-team"`),
		ContainSubstring(".spec.driver.env"), Not(ContainSubstring("toolkit")))))
	e.Expect(apply("gpu-team", `{driver: {env: [{name: B, value: "2"}]}}`, client.ForceOwnership)).To(Succeed())
	e.Expect(e.policy().Spec.Driver.Env).To(Equal([]v1.EnvVar{{Name: "B", Value: "2"}}))
	e.Expect(e.policy().Spec.Toolkit.Env).To(Equal([]v1.EnvVar{{Name: "A", Value: "1"}}), "other lists keep their owner")
}
