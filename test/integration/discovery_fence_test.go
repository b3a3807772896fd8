package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	discoverySet = "DaemonSet nvidia-node-discovery"
	unfenced     = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is missing: " +
		"apply config/admission, or use Node Feature Discovery"
	// fenceTime is how long it may take until the operator has done what a fence that comes or goes asks for.
	fenceTime = 5 * time.Second
)

// TestDiscoveryNeedsItsFence: the pods of node discovery may patch every node, so they run only where the
// admission policy is that bounds what they write. Without it the policy says so, and is ready all the same where
// Node Feature Discovery labels the nodes. A fence that comes or goes is acted on at once, by the same operator.
func TestDiscoveryNeedsItsFence(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	b.removeFence()
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "unknown", Undiscovered: true})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	b.create(b.samplePolicy())
	b.awaitDiscovery(v1.OperandDisabled)
	b.Eventually(b.readiness).Should(And(HaveField("Reason", v1.ReasonNodeDiscoveryMissing),
		HaveField("Message", "no node has discovery labels, so that nobody knows which have GPUs: "+unfenced)))

	t.Run("Node Feature Discovery labels a node", func(t *testing.T) {
		b := b.in(t)
		_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "labelled"})
		b.Expect(err).NotTo(HaveOccurred())
		b.awaitReady(1)
		b.awaitDiscovery(v1.OperandDisabled)
		b.Expect(b.written()).NotTo(HaveKey(discoverySet))
		b.settled()
		b.quietFor("at rest without the fence", 5*time.Second)
	})
	t.Run("the built-in discovery alone is refused, and cured by the fence", func(t *testing.T) {
		b := b.in(t)
		b.setDiscovery(v1.DiscoveryBuiltin)
		b.awaitDiscovery(v1.OperandInvalid)
		b.Expect(b.readiness()).To(And(HaveField("Reason", v1.ReasonFenceMissing), HaveField("Message", "node-discovery: "+unfenced)))
		b.Expect(b.written()).NotTo(HaveKey(discoverySet))
		b.applyFence()
		b.Eventually(b.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).Should(HaveKey(discoverySet))
		b.awaitReady(2)
	})
	t.Run("what the built-in discovery alone runs is left without the fence", func(t *testing.T) {
		b := b.in(t)
		before := b.written()
		b.removeFence()
		b.awaitDiscovery(v1.OperandInvalid)
		b.Expect(b.written()).To(Equal(before))
	})
	t.Run("it goes without the fence, its labels stay, and it comes with it", func(t *testing.T) {
		b := b.in(t)
		b.setDiscovery(v1.DiscoveryAuto)
		b.awaitDiscovery(v1.OperandDisabled)
		b.applyFence()
		begin := time.Now()
		b.Eventually(b.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).Should(HaveKey(discoverySet))
		came := time.Since(begin)
		b.awaitReady(2)
		b.awaitDiscovery(v1.OperandReady)
		b.removeFence()
		begin = time.Now()
		b.Eventually(b.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).ShouldNot(HaveKey(discoverySet))
		t.Logf("node discovery is there %s after its fence, and gone %s after it", came.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		b.awaitDiscovery(v1.OperandDisabled)
		b.awaitReady(2)
		b.Expect(b.node("unknown").Labels).To(HaveKeyWithValue(labels.DiscoveryPrefix+"pci-10de.present", "true"))
	})
	t.Run("one watch of one object", func(t *testing.T) {
		b := b.in(t)
		var reads cluster.Calls
		for _, call := range b.operatorCalls(0) {
			if call.Resource == "validatingadmissionpolicybindings" && call.Verb != "watch" {
				reads = append(reads, call)
			}
		}
		b.Expect(len(reads)).To(BeNumerically("<=", 1), "%s", reads)
	})
}

// removeFence deletes the admission policy of node discovery, as in a cluster that was never given it.
func (b *bed) removeFence() {
	b.t.Helper()
	b.removePolicy(labels.DiscoveryFence)
}

// applyFence does what the operator's message says.
func (b *bed) applyFence() {
	b.t.Helper()
	objects, err := cluster.Render(filepath.Join(repo, "config/admission"))
	b.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		b.Expect(b.client.Apply(b.t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("administrator"), client.ForceOwnership)).To(Succeed())
	}
}

func (b *bed) setDiscovery(mode v1.DiscoveryMode) {
	b.t.Helper()
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: mode} })
}

// awaitDiscovery waits until node discovery has this state, and for want of its fence if it is not ready.
func (b *bed) awaitDiscovery(state v1.OperandState) {
	b.t.Helper()
	reason, message := v1.ReasonFenceMissing, unfenced
	if state == v1.OperandReady {
		reason, message = "", ""
	}
	b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).WithPolling(100 * time.Millisecond).
		Should(ContainElement(And(HaveField("Name", "node-discovery"), HaveField("State", state),
			HaveField("Reason", reason), HaveField("Message", message))))
}

// readiness is the condition Ready of the policy.
func (b *bed) readiness() any {
	b.t.Helper()
	for _, condition := range b.policy().Status.Conditions {
		if condition.Type == v1.ConditionReady {
			return condition
		}
	}
	return nil
}
