package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// labelEvents is how many changes of labels a node sees. They are others' labels and discovery's by turns.
const labelEvents = 1000

// TestOptOutHolds: users keep operands off nodes before these join. That holds through all that happens to the
// labels of the nodes, and no value of theirs is written over. Events that ask for nothing are answered by no write.
func TestOptOutHolds(t *testing.T) {
	t.Parallel()
	events := labelEvents
	if !cluster.FullCampaigns() {
		events = labelEvents / 2
	}
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	theirs := map[string]map[string]string{
		"out":   {"nvidia.com/gpu.deploy.operands": "false", "nvidia.com/gpu.deploy.driver": "true"},
		"apart": {"nvidia.com/gpu.deploy.dcgm-exporter": "false", "nvidia.com/gpu.deploy.gpu-feature-discovery": "paused-for-mig-change", "nvidia.com/gpu.deploy.driver": "pre-installed"},
	}
	b.run()
	object := b.samplePolicy()
	object.Spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)}
	b.create(object)
	for name, labels := range theirs {
		_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: name, Labels: labels, DriverOnHost: name == "apart"})
		b.Expect(err).NotTo(HaveOccurred())
	}
	for name, says := range map[string]string{"out": v1.ReasonExcluded, "apart": "GPUReady"} {
		b.Eventually(func() *corev1.NodeCondition { return nodeCondition(b.node(name)) }).
			Should(And(Not(BeNil()), HaveField("Reason", says)), name)
	}
	b.judgeOptOut(theirs)

	mark := b.mark()
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
	for i := range events {
		for name := range theirs {
			key := []string{"example.com/round", "feature.node.kubernetes.io/cpu-model.id", "nvidia.com/gpu.memory", "nvidia.com/gfd.timestamp"}[i%4]
			b.Expect(patchNode(t, admin, name, "labels", key, fmt.Sprint(i))).To(Succeed())
		}
	}
	b.Consistently(func() string { return b.operatorCalls(mark).Writes().Of("nodes").String() }).WithTimeout(3*time.Second).
		Should(BeEmpty(), "nothing was to be done")
	b.judgeOptOut(theirs)
	t.Logf("%d changes of labels of each of %d nodes, 0 writes", events, len(theirs))

	// A label of the operator's own is put back once, and with it nothing that users keep off.
	mark = b.mark()
	b.Expect(patchNode(t, admin, "apart", "labels", "nvidia.com/gpu.deploy.device-plugin", nil)).To(Succeed())
	b.Eventually(func() map[string]string { return b.node("apart").Labels }).
		Should(HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin", "true"))
	b.judgeOptOut(theirs)
	var patches int
	for _, call := range b.operatorCalls(mark).Writes().Of("nodes") {
		if call.Subresource == "" && call.Code == 200 {
			patches++
		}
	}
	b.Expect(patches).To(Equal(1), "one patch for a change")
}

// judgeOptOut compares the deploy labels of the nodes with what their users wrote.
func (b *bed) judgeOptOut(theirs map[string]map[string]string) {
	b.t.Helper()
	for name, labels := range theirs {
		for key, value := range labels {
			if name == "out" && value == "true" {
				// Like one of the operator's own, of a driver that the node is not to have.
				b.Expect(b.node(name).Labels).NotTo(HaveKey(key))
				continue
			}
			b.Expect(b.node(name).Labels).To(HaveKeyWithValue(key, value), name)
		}
		b.Expect(b.node(name).Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.mig-manager"), "a disabled operand")
	}
	b.Expect(b.node("out").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.device-plugin"))
	for _, app := range []string{"nvidia-driver-daemonset", "nvidia-dcgm-exporter", "gpu-feature-discovery"} {
		for name := range theirs {
			b.Expect(b.podOn(app, name)).To(BeNil(), "%s on %s", app, name)
		}
	}
}
