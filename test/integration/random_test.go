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
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

const (
	randomSpecs = 300
	// sampledSpecs is how many of them the short tier tries.
	sampledSpecs = 10
)

// TestRandomSpecs gives the policy random specs that the API server takes. Each is read back as it was
// written; the operator sees it through without a failed call, and is at rest in the end.
func TestRandomSpecs(t *testing.T) {
	t.Parallel()
	wanted := sampledSpecs
	if cluster.FullCampaigns() {
		wanted = randomSpecs
	}
	fields, err := specgen.Fields()
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.05)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	taken, refused := 0, 0
	for seed := uint64(1); taken < wanted; seed++ {
		err := b.replaceSpec(specgen.Random(rand.New(rand.NewPCG(seed, 0)), fields))
		if apierrors.IsInvalid(err) {
			refused++
			b.Expect(refused).To(BeNumerically("<", 20*wanted), "nearly all are refused, the last time: %s", err)
			continue
		}
		b.Expect(err).NotTo(HaveOccurred(), "seed %d", seed)
		taken++
		b.Eventually(func() v1.ClusterPolicyStatus { return b.policy().Status }).WithPolling(100*time.Millisecond).
			Should(And(HaveField("ObservedGeneration", b.policy().Generation),
				HaveField("Operands", Not(ContainElement(HaveField("State", v1.OperandError))))), "seed %d", seed)
	}
	t.Logf("random specs: %d taken and read back unchanged, %d refused as contradictions", taken, refused)
	b.settled()
	b.quietFor("after random specs", 5*time.Second)
}

// replaceSpec writes a spec and compares it with what the API server has made of it.
func (b *bed) replaceSpec(spec map[string]any) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policy)
	sent := runtime.DeepCopyJSON(spec)
	if err := b.edit(object, func() { object.Object["spec"] = runtime.DeepCopyJSON(spec) }, client.FieldValidation("Strict")); err != nil {
		return err
	}
	if diff := cmp.Diff(any(sent), object.Object["spec"]); diff != "" {
		return errors.New("the spec is not read back as it was written, -want +got:\n" + diff)
	}
	return nil
}
