package integration

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// TestValidateAgreesWithTheAPIServer: the check of kubectl gpu validate refuses the same specs as the API server, with
// the same fields and messages: the cases of TestAPI, and random ones, of which some contradict themselves.
func TestValidateAgreesWithTheAPIServer(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const random = 400
	e := newEnv(t, envOptions{bare: true, timing: simulator.DefaultTiming()})
	checker, err := schemacheck.New(crd.ClusterPolicy, "v1")
	e.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for _, c := range refused {
		objects = append(objects, policyOf(e, c.spec))
	}
	for _, spec := range accepted {
		objects = append(objects, policyOf(e, spec))
	}
	fields, err := specgen.Fields()
	e.Expect(err).NotTo(HaveOccurred())
	first := uint64(chance.Of(t, t.Name()).Uint32())
	for seed := first; seed < first+random; seed++ {
		object := policyOf(e, "{}")
		object.Object["spec"] = specgen.Random(rand.New(rand.NewPCG(seed, 0)), fields)
		objects = append(objects, object)
	}
	for _, metadata := range []map[string]any{
		{}, {"name": "Upper"}, {"name": strings.Repeat("a", 254)}, {"generateName": "p-"},
		{"name": "a", "labels": map[string]any{"-a": "b c"}}, {"name": "a", "finalizers": []any{"none"}},
		{"name": "a", "annotations": map[string]any{"a b": ""}},
	} {
		object := policyOf(e, "{daemonsets: {rollingUpdate: {maxUnavailable: 0}}}")
		object.Object["metadata"] = metadata
		objects = append(objects, object)
	}
	refusedByServer := 0
	for _, object := range objects {
		want, got := e.causes(object), []string{}
		found := checker.Check(t.Context(), e.decoded(object))
		for _, problem := range found.Refused {
			got = append(got, problem.Error())
		}
		if found.RulesSkipped {
			got = append(got, rulesSkipped)
		}
		slices.Sort(got)
		e.Expect(got).To(Equal(want), "%v", object.Object["spec"])
		if len(want) > 0 {
			refusedByServer++
		}
	}
	t.Logf("specs on which the API server and validate agree: %d/%d, of which %d are refused", len(objects), len(objects),
		refusedByServer)
	e.Expect(refusedByServer).To(BeNumerically(">=", len(refused)))
	unknown := policyOf(e, "{driver: {versions: a}, toolkit: {env: [{name: A, values: b}]}}")
	e.Expect(checker.Check(t.Context(), e.decoded(unknown)).Dropped).To(ConsistOf(
		"spec.driver.versions", "spec.toolkit.env[0].values"))
}

// rulesSkipped is what the API server reports beside errors which keep it from evaluating rules. It is no error of the
// object, and has no field.
const rulesSkipped = "<nil>: Invalid value: null: some validation rules were not checked because the object was " +
	"invalid; correct the existing errors to complete validation"

// causes are what the API server refuses, sorted; empty if it accepts the object.
func (e *env) causes(object *unstructured.Unstructured) []string {
	e.t.Helper()
	err := e.client.Create(e.t.Context(), object.DeepCopy(), client.DryRunAll)
	all := []string{}
	if err == nil {
		return all
	}
	status := &apierrors.StatusError{}
	e.Expect(errors.As(err, &status)).To(BeTrue(), "%v", err)
	e.Expect(status.ErrStatus.Reason).To(Equal(metav1.StatusReasonInvalid), "%v", err)
	for _, cause := range status.ErrStatus.Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	slices.Sort(all)
	return all
}

// decoded returns an object as the API server decodes it, with whole numbers as such.
func (e *env) decoded(object *unstructured.Unstructured) *unstructured.Unstructured {
	e.t.Helper()
	text, err := object.MarshalJSON()
	e.Expect(err).NotTo(HaveOccurred())
	found := &unstructured.Unstructured{}
	e.Expect(found.UnmarshalJSON(text)).To(Succeed())
	return found
}
