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

// garbageTime is the timeout for the garbage collector, which only discovers new kinds every 30 s.
const garbageTime = 100 * time.Second

// TestNodesBecomeReady is the main test, on the newest and the oldest supported Kubernetes.
func TestNodesBecomeReady(t *testing.T) {
	for _, version := range cluster.Releases() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, envOptions{version: version, nodes: 3, timing: simulator.DefaultTiming().Scale(0.5), shipped: true})
			// With flags that NVIDIA's installers set.
			e.run("--leader-elect", "--leader-lease-renew-deadline=60s", "--zap-log-level=info", "--zap-time-encoding=epoch")
			e.create(e.samplePolicy())
			t.Logf("Kubernetes %s: ready after %s", e.cluster.Version, e.awaitReady(3))
			for _, name := range []string{"gpu-00000", "gpu-00001", "gpu-00002"} {
				node := e.node(name)
				e.Expect(node.Labels).To(And(
					HaveKeyWithValue("nvidia.com/gpu.present", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.driver", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.container-toolkit", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.device-plugin", "true"),
					HaveKeyWithValue("nvidia.com/gpu.deploy.operator-validator", "true"),
				))
				e.Expect(nodeCondition(node)).To(HaveField("Status", corev1.ConditionTrue))
			}
			e.deletionLeavesNothing()
		})
	}
}

// deletionLeavesNothing deletes the policy and checks for leftovers: objects, labels and conditions.
func (e *env) deletionLeavesNothing() {
	e.t.Helper()
	e.Expect(e.client.Delete(e.t.Context(), e.policy())).To(Succeed())
	e.Eventually(e.leftovers).WithTimeout(garbageTime).WithPolling(time.Second).Should(BeEmpty())
}

// leftovers returns the names of the operator's objects, labels and conditions.
func (e *env) leftovers() []string {
	var found []string
	for _, list := range []client.ObjectList{
		&appsv1.DaemonSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &nodev1.RuntimeClassList{},
	} {
		e.Expect(e.client.List(e.t.Context(), list, client.HasLabels{"nvidia.com/gpu-operator.operand"})).To(Succeed())
		e.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			found = append(found, fmt.Sprintf("%T %s", item, object.GetName()))
			return err
		})).To(Succeed())
	}
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(e.t.Context(), nodes)).To(Succeed())
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

// TestSecondPolicyIsIgnored: only the oldest policy is reconciled, and the second one takes over when the first is
// deleted.
func TestSecondPolicyIsIgnored(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	second := e.samplePolicy()
	second.Name = "second"
	e.create(second)
	state := func() v1.State {
		e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(second), second)).To(Succeed())
		return second.Status.State
	}
	e.Eventually(state).Should(Equal(v1.StateIgnored))
	e.Expect(second.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"),
		HaveField("Reason", v1.ReasonIgnored))))
	e.Expect(e.policy().Status.State).To(Equal(v1.StateReady))
	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(state).WithTimeout(garbageTime).WithPolling(time.Second).Should(Equal(v1.StateReady))
}

// TestNoGPUNodes: a cluster without GPU nodes and one without discovery labels are reported differently.
func TestNoGPUNodes(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "plain", Undiscovered: true, NoGPU: true})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
	e.create(object)
	ready := func() (string, error) {
		object := &v1.ClusterPolicy{}
		err := e.client.Get(t.Context(), client.ObjectKey{Name: policy}, object)
		for _, condition := range object.Status.Conditions {
			if condition.Type == v1.ConditionReady {
				return string(object.Status.State) + " " + condition.Reason, err
			}
		}
		return "", err
	}
	e.Eventually(ready).Should(Equal("notReady NodeDiscoveryMissing"), "without node discovery")
	e.setDiscovery(v1.DiscoveryAuto)
	e.Eventually(ready).Should(Equal("ready NoGPUNodes"), "with the operator's node discovery")
	states := map[string]v1.OperandState{
		"runtime-classes": v1.OperandReady, "node-discovery": v1.OperandReady, "operator-metrics": v1.OperandReady,
		"dcgm": v1.OperandDisabled, "node-status-exporter": v1.OperandDisabled, "mps-control-daemon": v1.OperandDisabled,
		"health-agent": v1.OperandDisabled,
	}
	for _, operand := range e.policy().Status.Operands {
		e.Expect(operand.State).To(Equal(cmp.Or(states[operand.Name], v1.OperandNotNeeded)), operand.Name)
	}
	e.Expect(e.node("plain").Labels).NotTo(HaveKey("nvidia.com/gpu.present"))
}

// TestDiscoversNodesByItself: Node Feature Discovery is not needed. Deleting the policy removes the discovery labels
// from every node, including those without a GPU.
func TestDiscoversNodesByItself(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	others := map[string]string{"nvidia.com/gpu.present": "false", "nvidia.com/gpu.deploy.device-plugin": "true"}
	for _, spec := range []simulator.NodeSpec{
		{
			Name: "gpu", Undiscovered: true,
			Taints: []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoExecute}},
		},
		{Name: "plain", Undiscovered: true, NoGPU: true, Labels: others},
	} {
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.run()
	object := e.samplePolicy()
	object.Spec.DaemonSets = &v1.DaemonSetsSpec{
		Tolerations: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}},
	}
	e.create(object)
	e.awaitReady(1)
	e.Expect(e.node("plain").Labels).To(HaveKey("feature.node.kubernetes.io/kernel-version.full"))
	e.Expect(e.node("plain").Labels).To(HaveKeyWithValue("nvidia.com/gpu.present", "false"))

	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func(g Gomega) {
		for _, name := range []string{"gpu", "plain"} {
			node := e.node(name)
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
		e.Expect(e.node("plain").Labels).To(HaveKeyWithValue(key, value),
			"an administrator's label, on a node that was only discovered")
	}
}
