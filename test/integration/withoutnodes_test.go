package integration

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// keptBefore are the DaemonSets before the first GPU node: those that need no fact of a node, and those for the
// system of the other node.
var keptBefore = []string{
	driverApp, toolkitApp, pluginName, "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator",
}

// TestDaemonSetsWithoutGPUNodes: with operator.keepWithoutNodes the DaemonSets exist before the first GPU node, and
// stay after the last one, up to date. A node like the template of a cluster autoscaler's node group gets their pods.
func TestDaemonSetsWithoutGPUNodes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "plain", NoGPU: true})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	object := e.samplePolicy()
	object.Spec.Operator = &v1.OperatorSpec{KeepWithoutNodes: new(true)}
	requests := &v1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}
	object.Spec.DevicePlugin = &v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Resources: requests}}
	e.create(object)
	e.Eventually(e.stackOnGPUNodes).Should(ConsistOf(keptBefore))
	e.keptIsNotReady()
	e.settled()
	e.quietFor("without GPU nodes", 3*time.Second)

	e.stop()
	mark := e.mark()
	e.run()
	e.quietSince("a restart without GPU nodes", mark, 5*time.Second)
	e.stop()
	e.templateNodeGetsPods()
	e.run()

	names, err := e.sim.AddNodes(t.Context(), 1)
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(1)
	had := e.uidsOnGPUNodes()
	e.Expect(e.client.Delete(t.Context(), e.node(names[0]))).To(Succeed())
	e.Eventually(e.operandStates).Should(HaveKeyWithValue("driver", v1.OperandNotNeeded))
	e.keptIsNotReady()
	policy := e.policy()
	e.Expect(e.edit(policy, func() {
		policy.Spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "590.1.01"}}
	})).To(Succeed())
	e.Eventually(func() string { return e.daemonSet(driverApp).Spec.Template.Spec.Containers[0].Image }).
		Should(ContainSubstring("590.1.01"), "the first node to come must not get an outdated driver")
	e.Expect(e.uidsOnGPUNodes()).To(Equal(had), "none has been created again")

	policy = e.policy()
	e.Expect(e.edit(policy, func() { policy.Spec.Operator.KeepWithoutNodes = nil })).To(Succeed())
	e.Eventually(e.stackOnGPUNodes).Should(BeEmpty())
}

// uidsOnGPUNodes returns the UIDs of the DaemonSets for GPU nodes, by name.
func (e *env) uidsOnGPUNodes() map[string]types.UID {
	found := map[string]types.UID{}
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		// It runs on all nodes.
		if list.Items[i].Name != "nvidia-node-discovery" {
			found[list.Items[i].Name] = list.Items[i].UID
		}
	}
	return found
}

func (e *env) stackOnGPUNodes() []string {
	var names []string
	for name := range e.uidsOnGPUNodes() {
		names = append(names, name)
	}
	return names
}

func (e *env) operandStates() map[string]v1.OperandState {
	states := map[string]v1.OperandState{}
	for _, operand := range e.policy().Status.Operands {
		states[operand.Name] = operand.State
	}
	return states
}

// keptIsNotReady: an operand with a DaemonSet and no node is not passed off as ready.
func (e *env) keptIsNotReady() {
	e.t.Helper()
	e.Eventually(e.readiness).Should(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonNoGPUNodes),
	))
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).Should(ContainElement(And(
		HaveField("Name", "device-plugin"), HaveField("State", v1.OperandNotNeeded),
		HaveField("Message", "no node needs it yet: it is installed because spec.operator.keepWithoutNodes is true"),
	)))
}

// templateNodeGetsPods creates the node that a cluster autoscaler imagines from the labels and the taint of a node
// group, as docs/ecosystem.md describes them, and deletes it. The autoscaler counts the pods that the DaemonSets would
// have there, as the scheduler places them.
func (e *env) templateNodeGetsPods() {
	e.t.Helper()
	labels := map[string]string{
		"nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64", "nvidia.com/gpu-operator.runtime": "containerd",
	}
	for _, name := range []string{
		"driver", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "operator-validator",
	} {
		labels["nvidia.com/gpu.deploy."+name] = "true"
	}
	_, err := e.sim.AddNode(e.t.Context(), simulator.NodeSpec{
		Name: "template", NoGPU: true, Labels: labels,
		Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.Eventually(func() []string { return e.ownersOn("template") }).Should(ContainElements(keptBefore))
	e.Expect(e.podOn(pluginName, "template").Spec.Containers[0].Resources.Requests.Cpu().MilliValue()).
		To(BeEquivalentTo(100))
	e.Expect(e.client.Delete(e.t.Context(), e.node("template"))).To(Succeed())
}

// ownersOn returns the names of the DaemonSets that have a pod on the node.
func (e *env) ownersOn(node string) []string {
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace))).To(Succeed())
	var names []string
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		if pods.Items[i].Spec.NodeName == node && owner != nil {
			names = append(names, owner.Name)
		}
	}
	slices.Sort(names)
	return names
}
