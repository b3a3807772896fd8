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

// labelEvents is the number of label changes of a node, alternately of other labels and of discovery labels.
const labelEvents = 1000

// TestOptOutHolds: users opt nodes out of operands before these join. That stays in effect through all changes of
// labels, and no value of users is overwritten. Irrelevant events cause no write.
func TestOptOutHolds(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	events := labelEvents
	if !cluster.FullCampaigns() {
		events = labelEvents / 2
	}
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	theirs := map[string]map[string]string{
		"out": {"nvidia.com/gpu.deploy.operands": "false", "nvidia.com/gpu.deploy.driver": "true"},
		"apart": {
			"nvidia.com/gpu.deploy.dcgm-exporter":         "false",
			"nvidia.com/gpu.deploy.gpu-feature-discovery": "paused-for-mig-change",
			"nvidia.com/gpu.deploy.driver":                "pre-installed",
		},
	}
	e.run()
	object := e.samplePolicy()
	object.Spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)}
	e.create(object)
	for name, labels := range theirs {
		_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: name, Labels: labels, DriverOnHost: name == "apart"})
		e.Expect(err).NotTo(HaveOccurred())
	}
	for name, reason := range map[string]string{"out": v1.ReasonExcluded, "apart": "GPUReady"} {
		e.Eventually(func() *corev1.NodeCondition { return nodeCondition(e.node(name)) }).
			Should(And(Not(BeNil()), HaveField("Reason", reason)), name)
	}
	e.judgeOptOut(theirs)

	mark := e.mark()
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	for i := range events {
		for name := range theirs {
			key := []string{
				"example.com/round", "feature.node.kubernetes.io/cpu-model.id", "nvidia.com/gpu.memory", "nvidia.com/gfd.timestamp",
			}[i%4]
			e.Expect(patchNode(t, admin, name, "labels", key, fmt.Sprint(i))).To(Succeed())
		}
	}
	e.Consistently(func() string {
		return e.operatorCalls(mark).Writes().Of("nodes").String()
	}).WithTimeout(3*time.Second).
		Should(BeEmpty(), "there was nothing to do")
	e.judgeOptOut(theirs)
	t.Logf("%d changes of labels of each of %d nodes, 0 writes", events, len(theirs))

	// A label of the operator is restored once, and none that users have opted out of.
	mark = e.mark()
	e.Expect(patchNode(t, admin, "apart", "labels", "nvidia.com/gpu.deploy.device-plugin", nil)).To(Succeed())
	e.Eventually(func() map[string]string { return e.node("apart").Labels }).
		Should(HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin", "true"))
	e.judgeOptOut(theirs)
	var patches int
	for _, call := range e.operatorCalls(mark).Writes().Of("nodes") {
		if call.Subresource == "" && call.Code == 200 {
			patches++
		}
	}
	e.Expect(patches).To(Equal(1), "one patch for a change")
}

// judgeOptOut compares the deploy labels of the nodes with the values that users wrote.
func (e *env) judgeOptOut(theirs map[string]map[string]string) {
	e.t.Helper()
	for name, labels := range theirs {
		for key, value := range labels {
			if name == "out" && value == "true" {
				// The same value as the operator's, for a driver that the node must not get.
				e.Expect(e.node(name).Labels).NotTo(HaveKey(key))
				continue
			}
			e.Expect(e.node(name).Labels).To(HaveKeyWithValue(key, value), name)
		}
		e.Expect(e.node(name).Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.mig-manager"), "a disabled operand")
	}
	e.Expect(e.node("out").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.device-plugin"))
	for _, app := range []string{"nvidia-driver-daemonset", "nvidia-dcgm-exporter", "gpu-feature-discovery"} {
		for name := range theirs {
			e.Expect(e.podOn(app, name)).To(BeNil(), "%s on %s", app, name)
		}
	}
}
