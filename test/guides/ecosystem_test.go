package guides

import (
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// Nodes of TestEcosystem.
const (
	gangNode    = "gang"
	batchNode   = "batch"
	tenantNode  = "tenants"
	brokenNode  = "broken"
	driverName  = "drivers"
	tenantLabel = "example.com/tenants"
)

// gangCluster serves the API of gang scheduling of the newest release, which is alpha.
func gangCluster() cluster.Options {
	return cluster.Options{
		Version:      cluster.Newest,
		FeatureGates: []string{"GenericWorkload", "GangScheduling"},
		APIs:         []string{"scheduling.k8s.io/v1alpha2"},
	}
}

// scenarios are what the samples promise about scheduling and admission. Each has nodes of its own.
var scenarios = []claim{
	{"a gang of 8 on 6 GPUs: none starts, and on 8 all do", gangOfEight},
	{"a quota of 8 GPUs, 14 MIG devices and 16 shares refuses one more of each", sampleQuota},
	{"inference evicts batch work, and batch work evicts nothing", inferenceEvictsBatch},
	{"a pod of a tenant gets a GPU where Pod Security is restricted, and a privileged one does not", restrictedTenant},
	{"the pods of the samples get their GPUs", podsOfSamples},
	{"the policies for the network select the pods that they are about", networkPolicies},
	{"the policy for GPU pods warns, reports or refuses", gpuPodModes},
	{"the rules of Kyverno and Gatekeeper refuse a pod without a GPU on a GPU node", engineRules},
	{"the API server accepts the rules about GPUs", rulesAreValid},
	{"the API server accepts the sample for Flux", fluxSampleIsValid},
	{"the API server accepts the sample for Argo CD", argoCDSampleIsValid},
	{"the API server refuses unequal requests and fractions of GPUs itself", refusedByTheAPIServer},
}

// TestEcosystem: the samples for other projects are valid and do what they say, and the readers of GitOps tools
// understand the state of a policy and of an NVIDIADriver, from the creation to the deletion.
func TestEcosystem(t *testing.T) {
	t.Parallel()
	small := func(name string, gpus int, labels ...string) simulator.NodeSpec {
		spec := h100(name, gpus, labels...)
		spec.Model = simulator.ModelSmallA100
		return spec
	}
	batch := small(batchNode, 2)
	batch.Model = simulator.ModelA100
	e := newCluster(t, gangCluster(), []simulator.NodeSpec{
		h100(gangNode, 6), batch, small(tenantNode, 8, tenantLabel, "true"), small(brokenNode, 1),
	})
	// Until it is healed, the policy cannot become ready.
	e.sim.Break("driver", brokenNode, simulator.NeverReady)
	e.create(&v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}})
	read := newReaders(e)
	e.Expect(read.apply(read.manifest())).To(Succeed())
	read.judge("just created", inProgress, "Progressing", inProgress, "Progressing")
	e.startOperator()
	read.starting()
	var held atomic.Int32
	begin := time.Now()
	e.hold("samples", []claim{{"each sample is valid", samplesAreValid}}, &held)
	e.hold("scenarios", scenarios, &held)
	t.Logf("scenarios that hold: %d/%d, after %s", held.Load(), len(scenarios)+1, time.Since(begin).Round(time.Second))
	read.stages()
}

// expectNoneBound checks that pods have no node, once the scheduler has said so of each.
func (e *env) expectNoneBound(pods []corev1.Pod) {
	e.t.Helper()
	for i := range pods {
		e.expectWaiting(&pods[i], "")
		e.Expect(pods[i].Spec.NodeName).To(BeEmpty(), pods[i].Name)
	}
}
