package integration

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

const (
	randomSpecs = 300
	// sampledSpecs is how many specs the short tier tries.
	sampledSpecs = 10
)

// TestRandomSpecs sets random specs that the API server accepts. Each is read back unchanged; the operator reconciles
// it without a failed request, and is at rest in the end.
func TestRandomSpecs(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	wanted := sampledSpecs
	if cluster.FullCampaigns() {
		wanted = randomSpecs
	}
	fields, err := specgen.Fields()
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.05)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	taken, refused := 0, 0
	for seed := uint64(chance.Of(t, t.Name()).Uint32()); taken < wanted; seed++ {
		err := e.replaceSpec(specgen.Random(rand.New(rand.NewPCG(seed, 0)), fields))
		if apierrors.IsInvalid(err) {
			refused++
			e.Expect(refused).To(BeNumerically("<", 20*wanted), "nearly all are refused, the last time: %s", err)
			continue
		}
		e.Expect(err).NotTo(HaveOccurred(), "seed %d", seed)
		taken++
		e.Eventually(func() v1.ClusterPolicyStatus { return e.policy().Status }).WithPolling(100*time.Millisecond).
			Should(And(HaveField("ObservedGeneration", e.policy().Generation),
				HaveField("Operands", Not(ContainElement(HaveField("State", v1.OperandError))))), "seed %d", seed)
	}
	t.Logf("random specs: %d accepted and read back unchanged, %d refused as contradictions", taken, refused)
	e.settled()
	e.quietFor("after random specs", 5*time.Second)
}

// replaceSpec writes a spec and compares it with what the API server has stored.
func (e *env) replaceSpec(spec map[string]any) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policy)
	sent := runtime.DeepCopyJSON(spec)
	if err := e.edit(
		object, func() { object.Object["spec"] = runtime.DeepCopyJSON(spec) }, client.FieldValidation("Strict"),
	); err != nil {
		return err
	}
	if diff := cmp.Diff(any(sent), object.Object["spec"]); diff != "" {
		return errors.New("the spec is not read back as it was written, -want +got:\n" + diff)
	}
	return nil
}
