package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	discoverySet = "DaemonSet nvidia-node-discovery"
	unfenced     = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-agents is " +
		"missing: " +
		"apply config/admission, or use Node Feature Discovery"
	// fenceTime limits how long a test waits until the operator has reacted to a created or deleted admission policy.
	fenceTime = 30 * time.Second
)

// TestDiscoveryNeedsItsFence: the pods of node discovery may patch every node, so they only run with the admission
// policy that limits their writes. Without it the ClusterPolicy reports that, but is ready if Node Feature Discovery
// labels the nodes. The operator reacts to its creation and deletion without a restart.
func TestDiscoveryNeedsItsFence(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	e.removeFence()
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "unknown", Undiscovered: true})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.create(e.samplePolicy())
	e.awaitDiscovery(v1.OperandDisabled)
	e.Eventually(e.readiness).Should(And(HaveField("Reason", v1.ReasonNodeDiscoveryMissing),
		HaveField("Message", "no node has discovery labels, so the GPU nodes are unknown: "+unfenced)))

	t.Run("Node Feature Discovery labels a node", func(t *testing.T) {
		e := e.in(t)
		_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "labelled"})
		e.Expect(err).NotTo(HaveOccurred())
		e.awaitReady(1)
		e.awaitDiscovery(v1.OperandDisabled)
		e.Expect(e.written()).NotTo(HaveKey(discoverySet))
		e.settled()
		e.quietFor("at rest without the admission policy", 5*time.Second)
	})
	t.Run("the built-in discovery alone is refused, and cured by the fence", func(t *testing.T) {
		e := e.in(t)
		e.setDiscovery(v1.DiscoveryBuiltin)
		e.awaitDiscovery(v1.OperandInvalid)
		e.Expect(e.readiness()).To(And(HaveField("Reason", v1.ReasonAdmissionPolicyMissing),
			HaveField("Message", "node-discovery: "+unfenced)))
		e.Expect(e.written()).NotTo(HaveKey(discoverySet))
		e.applyFence()
		e.Eventually(e.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).Should(HaveKey(discoverySet))
		e.awaitReady(2)
	})
	t.Run("with mode builtin the pods stay without the admission policy", func(t *testing.T) {
		e := e.in(t)
		before := e.written()
		e.removeFence()
		e.awaitDiscovery(v1.OperandInvalid)
		e.Expect(e.written()).To(Equal(before))
	})
	t.Run("it is removed without the admission policy, its labels stay, and it is installed with it", func(t *testing.T) {
		e := e.in(t)
		e.setDiscovery(v1.DiscoveryAuto)
		e.awaitDiscovery(v1.OperandDisabled)
		e.applyFence()
		begin := time.Now()
		e.Eventually(e.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).Should(HaveKey(discoverySet))
		came := time.Since(begin)
		e.awaitReady(2)
		e.awaitDiscovery(v1.OperandReady)
		e.removeFence()
		begin = time.Now()
		e.Eventually(e.written).WithTimeout(fenceTime).WithPolling(20 * time.Millisecond).ShouldNot(HaveKey(discoverySet))
		t.Logf("node discovery is installed %s after its admission policy, and removed %s after it",
			came.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		e.awaitDiscovery(v1.OperandDisabled)
		e.awaitReady(2)
		e.Expect(e.node("unknown").Labels).To(HaveKeyWithValue(labels.DiscoveryPrefix+"pci-10de.present", "true"))
	})
	t.Run("one watch of each object", func(t *testing.T) {
		e := e.in(t)
		var reads cluster.Calls
		for _, call := range e.operatorCalls(0) {
			if call.Resource == "validatingadmissionpolicybindings" && call.Verb != "watch" {
				reads = append(reads, call)
			}
		}
		e.Expect(len(reads)).To(BeNumerically("<=", 2), "%s", reads)
	})
}

// removeFence deletes the admission policy of node discovery, as in a cluster that never had it.
func (e *env) removeFence() {
	e.t.Helper()
	e.removePolicy(labels.AgentPolicyBinding)
}

// applyFence follows the operator's message.
func (e *env) applyFence() {
	e.t.Helper()
	objects, err := cluster.Render(filepath.Join(repo, "config/admission"))
	e.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		e.Expect(e.client.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("administrator"), client.ForceOwnership)).To(Succeed())
	}
}

func (e *env) setDiscovery(mode v1.DiscoveryMode) {
	e.t.Helper()
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: mode} })
}

// awaitDiscovery waits until node discovery has this state, and for want of its fence if it is not ready.
func (e *env) awaitDiscovery(state v1.OperandState) {
	e.t.Helper()
	reason, message := v1.ReasonAdmissionPolicyMissing, unfenced
	if state == v1.OperandReady {
		reason, message = "", ""
	}
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).WithPolling(100 * time.Millisecond).
		Should(ContainElement(And(HaveField("Name", "node-discovery"), HaveField("State", state),
			HaveField("Reason", reason), HaveField("Message", message))))
}

// readiness returns the condition Ready of the policy.
func (e *env) readiness() any {
	e.t.Helper()
	for _, condition := range e.policy().Status.Conditions {
		if condition.Type == v1.ConditionReady {
			return condition
		}
	}
	return nil
}
