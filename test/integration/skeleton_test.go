package integration

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// garbageTime is for the garbage collector, which looks only every 30 s for new kinds of owners.
const garbageTime = 100 * time.Second

// TestBringsNodesToReady is the main job, on the newest and the oldest Kubernetes that is supported.
func TestBringsNodesToReady(t *testing.T) {
	for _, version := range []string{cluster.Newest, cluster.Oldest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, bedOptions{version: version, nodes: 3, timing: simulator.DefaultTiming().Scale(0.5), shipped: true})
			b.run("--leader-elect")
			b.create(b.samplePolicy())
			t.Logf("Kubernetes %s: ready after %s", b.cluster.Version, b.awaitReady(3))
			for _, name := range []string{"gpu-00000", "gpu-00001", "gpu-00002"} {
				node := b.node(name)
				b.Expect(node.Labels).To(And(
					HaveKeyWithValue("nvidia.com/gpu.present", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.container-toolkit", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.operator-validator", "true"),
				))
				b.Expect(nodeCondition(node)).To(HaveField("Status", corev1.ConditionTrue))
			}
			b.deletionLeavesNothing()
		})
	}
}

// deletionLeavesNothing removes the policy and looks for leftovers: objects, labels and conditions.
func (b *bed) deletionLeavesNothing() {
	b.t.Helper()
	b.Expect(b.client.Delete(b.t.Context(), b.policy())).To(Succeed())
	b.Eventually(b.leftovers).WithTimeout(garbageTime).WithPolling(time.Second).Should(BeEmpty())
}

// leftovers names what there is of the operator's.
func (b *bed) leftovers() []string {
	var found []string
	for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &nodev1.RuntimeClassList{}} {
		b.Expect(b.client.List(b.t.Context(), list, client.HasLabels{"nvidia.com/gpu-operator.operand"})).To(Succeed())
		b.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			found = append(found, fmt.Sprintf("%T %s", item, object.GetName()))
			return err
		})).To(Succeed())
	}
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(b.t.Context(), nodes)).To(Succeed())
	for i := range nodes.Items {
		for key := range nodes.Items[i].Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				found = append(found, "label "+key+" on "+nodes.Items[i].Name)
			}
		}
		if nodeCondition(&nodes.Items[i]) != nil {
			found = append(found, "condition on "+nodes.Items[i].Name)
		}
	}
	return found
}

// TestSecondPolicyIsIgnored: the oldest policy is in force, and takes over when it is the last.
func TestSecondPolicyIsIgnored(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	second := b.samplePolicy()
	second.Name = "second"
	b.create(second)
	state := func() v1.State {
		b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(second), second)).To(Succeed())
		return second.Status.State
	}
	b.Eventually(state).Should(Equal(v1.StateIgnored))
	b.Expect(second.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", v1.ReasonIgnored))))
	b.Expect(b.policy().Status.State).To(Equal(v1.StateReady))
	b.Expect(b.client.Delete(t.Context(), b.policy())).To(Succeed())
	b.Eventually(state).WithTimeout(garbageTime).WithPolling(time.Second).Should(Equal(v1.StateReady))
}

// TestNoGPUNodes: nothing to do is told, and is something else than not knowing.
func TestNoGPUNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "plain", Undiscovered: true, NoGPU: true})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	object := b.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
	b.create(object)
	ready := func() (string, error) {
		object := &v1.ClusterPolicy{}
		err := b.client.Get(t.Context(), client.ObjectKey{Name: policy}, object)
		for _, condition := range object.Status.Conditions {
			if condition.Type == v1.ConditionReady {
				return string(object.Status.State) + " " + condition.Reason, err
			}
		}
		return "", err
	}
	b.Eventually(ready).Should(Equal("notReady NodeDiscoveryMissing"), "nobody discovers nodes")
	b.setDiscovery(v1.DiscoveryAuto)
	b.Eventually(ready).Should(Equal("ready NoGPUNodes"), "the operator's own discovery does")
	states := map[string]v1.OperandState{
		"runtime-classes": v1.OperandReady, "node-discovery": v1.OperandReady, "operator-metrics": v1.OperandReady,
		"dcgm": v1.OperandDisabled, "node-status-exporter": v1.OperandDisabled, "mps-control-daemon": v1.OperandDisabled,
	}
	for _, operand := range b.policy().Status.Operands {
		b.Expect(operand.State).To(Equal(cmp.Or(states[operand.Name], v1.OperandNotNeeded)), operand.Name)
	}
	b.Expect(b.node("plain").Labels).NotTo(HaveKey("nvidia.com/gpu.present"))
}

// TestDiscoversNodesByItself: a cluster without Node Feature Discovery needs none. Deleting the policy
// takes the labels of discovery off every node, those without a GPU too.
func TestDiscoversNodesByItself(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	others := map[string]string{"nvidia.com/gpu.present": "false", "nvidia.com/gpu.deploy.device-plugin": "true"}
	for _, spec := range []simulator.NodeSpec{
		{Name: "gpu", Undiscovered: true, Taints: []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoExecute}}},
		{Name: "plain", Undiscovered: true, NoGPU: true, Labels: others},
	} {
		_, err := b.sim.AddNode(t.Context(), spec)
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.run()
	object := b.samplePolicy()
	object.Spec.DaemonSets = &v1.DaemonSetsSpec{Tolerations: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}}
	b.create(object)
	b.awaitReady(1)
	b.Expect(b.node("plain").Labels).To(HaveKey("feature.node.kubernetes.io/kernel-version.full"))
	b.Expect(b.node("plain").Labels).To(HaveKeyWithValue("nvidia.com/gpu.present", "false"))

	b.Expect(b.client.Delete(t.Context(), b.policy())).To(Succeed())
	b.Eventually(func(g Gomega) {
		for _, name := range []string{"gpu", "plain"} {
			node := b.node(name)
			for key := range node.Labels {
				g.Expect(key).NotTo(HavePrefix("feature.node.kubernetes.io/"), name)
				if _, there := others[key]; !there || name == "gpu" {
					g.Expect(key).NotTo(HavePrefix("nvidia.com/"), name)
				}
			}
			g.Expect(node.Annotations).NotTo(HaveKey("nvidia.com/gpu-operator.discovered-labels"), name)
		}
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	for key, value := range others {
		b.Expect(b.node("plain").Labels).To(HaveKeyWithValue(key, value), "an administrator's, on a node that was only discovered")
	}
}
