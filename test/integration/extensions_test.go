package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	mirror   = "mirror.local:5000/proxy"
	exporter = "dcgm-exporter"
	tierKey  = "example.com/tier"
)

// TestExtensions: all images come from a mirror, with proxies and certificates for every container. A policy
// that is paused is reported on and changes nothing, whatever happens; then it goes on. A node selector moves
// an operand off a node, and no other pod; a driver stays where it is.
func TestExtensions(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	b.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "authorities"}, Data: map[string]string{"ca-bundle.crt": "-----BEGIN CERTIFICATE-----"},
	})
	b.relabel("gpu-00001", tierKey, "metrics")
	b.relabel("gpu-00002", tierKey, "metrics")
	b.run()
	object := b.samplePolicy()
	object.Spec.Global = &v1.GlobalSpec{
		Registry: mirror, Proxy: &v1.ProxySpec{HTTPSProxy: "http://proxy.local:3128"}, CABundle: &v1.CABundleSpec{ConfigMapName: "authorities"},
	}
	b.create(object)
	b.awaitReady(3)
	before := b.pods()
	t.Run("every container has the mirror, the proxy and the certificates", func(t *testing.T) { b.in(t).reachesEveryContainer() })
	t.Run("a paused policy writes its status alone", func(t *testing.T) { b.in(t).pausedWritesStatusAlone() })
	t.Run("it goes on at once, and pods leave the node that is not selected", func(t *testing.T) {
		b := b.in(t)
		b.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = nil })
		b.awaitReady(4)
		b.Eventually(func() map[string]types.UID { return b.podsOf(exporter) }).Should(And(
			HaveLen(2), HaveKey(exporter+" on gpu-00001"), HaveKey(exporter+" on gpu-00002")))
		for name, uid := range before {
			if name != exporter+" on gpu-00000" {
				b.Expect(b.pods()).To(HaveKeyWithValue(name, uid), "no other pod was touched")
			}
		}
		b.Eventually(func() map[string]string { return b.node("gpu-00001").Labels }).Should(HaveKeyWithValue("nvidia.com/gpu.present", "true"))
		b.Expect(b.node("gpu-00000").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy." + exporter))
		b.Eventually(func() []v1.NodeStatus { return b.policy().Status.Nodes }).Should(ContainElement(And(
			HaveField("Name", "gpu-00000"), HaveField("Ready", true), HaveField("Reason", v1.ReasonNotSelected),
			HaveField("Message", "without dcgm-exporter: spec.dcgmExporter.nodeSelector requires label example.com/tier=metrics"))))
		b.Expect(b.policy().Status.Operands).To(ContainElement(And(
			HaveField("Name", exporter), HaveField("State", v1.OperandReady), HaveField("Desired", int32(2)))))
	})
	t.Run("a driver stays on a node that is not selected, and the command takes it off", func(t *testing.T) { b.in(t).driverStays() })
	t.Run("the label of a node brings its pod back", func(t *testing.T) {
		b := b.in(t)
		b.relabel("gpu-00000", tierKey, "metrics")
		b.Eventually(func() map[string]types.UID { return b.podsOf(exporter) }).Should(HaveKey(exporter + " on gpu-00000"))
	})
}

// relabel sets a label of a node as an administrator does; an empty value takes it off.
func (b *bed) relabel(node, key, value string) {
	b.t.Helper()
	text := `"` + value + `"`
	if value == "" {
		text = "null"
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":`+text+`}}}`))
	b.Expect(b.client.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)).To(Succeed())
}

// pods are the UIDs of the operands' pods, by operand and node.
func (b *bed) pods() map[string]types.UID { return b.podsOf("") }

func (b *bed) podsOf(operand string) map[string]types.UID {
	b.t.Helper()
	found := map[string]types.UID{}
	for _, pod := range b.operandPods() {
		if name := pod.Labels[labels.Operand]; operand == "" || name == operand {
			found[name+" on "+pod.Spec.NodeName] = pod.UID
		}
	}
	return found
}

func (b *bed) operandPods() []corev1.Pod {
	b.t.Helper()
	list := &corev1.PodList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace), client.HasLabels{labels.Operand})).To(Succeed())
	return list.Items
}

func (b *bed) reachesEveryContainer() {
	pods := b.operandPods()
	b.Expect(len(pods)).To(BeNumerically(">=", 3*6))
	for _, pod := range pods {
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			where := pod.Name + "/" + container.Name
			b.Expect(container.Image).To(HavePrefix(mirror+"/"), where)
			b.Expect(container.Env).To(ContainElements(
				corev1.EnvVar{Name: "https_proxy", Value: "http://proxy.local:3128"},
				corev1.EnvVar{Name: "SSL_CERT_FILE", Value: "/etc/gpu-operator/ca/ca-bundle.crt"}), where)
			b.Expect(container.VolumeMounts).To(ContainElement(And(HaveField("MountPath", "/etc/gpu-operator/ca"), HaveField("ReadOnly", true))), where)
		}
	}
	b.Expect(b.policy().Status.Pools).To(ContainElement(HaveField("Image", HavePrefix(mirror+"/nvidia/driver:"))))
}

// pausedWritesStatusAlone tempts the operator with a change of the spec, a changed object, a lost label of a
// node, and a new node. Status tells of all of them.
func (b *bed) pausedWritesStatusAlone() {
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
	b.Eventually(func() []metav1.Condition { return b.policy().Status.Conditions }).Should(ContainElement(And(
		HaveField("Type", v1.ConditionReady), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonPaused),
		HaveField("Message", "spec.paused is true, so nothing is changed; Reconciled: 3 of 3 GPU nodes are ready"))))
	mark, pods := b.mark(), b.pods()

	b.respec(func(spec *v1.ClusterPolicySpec) {
		spec.DCGMExporter = &v1.DCGMExporterSpec{
			PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{tierKey: "metrics"}},
			Service:       &v1.DCGMExporterServiceSpec{InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)},
		}
	})
	set := b.daemonSet(pluginName)
	b.Expect(b.edit(set, func() { delete(set.Labels, "app") })).To(Succeed())
	b.relabel("gpu-00001", "nvidia.com/gpu.present", "")
	_, err := b.sim.AddNode(b.t.Context(), simulator.NodeSpec{Name: "late"})
	b.Expect(err).NotTo(HaveOccurred())

	const left = "1 of its objects are not as the spec says; spec.paused leaves them so"
	b.Eventually(func(g Gomega) {
		found := b.policy()
		g.Expect(found.Status.ObservedGeneration).To(Equal(found.Generation))
		g.Expect(found.Status.State).To(Equal(v1.StateNotReady))
		g.Expect(found.Status.NodeSummary.ReadyOfTotal).To(Equal("3/4"))
		g.Expect(found.Status.Conditions).To(ContainElement(And(HaveField("Type", v1.ConditionReady), HaveField("Reason", v1.ReasonPaused))))
		g.Expect(found.Status.Nodes).To(ContainElement(And(HaveField("Name", "late"), HaveField("Ready", false), HaveField("Reason", v1.ReasonPodMissing))))
		for _, operand := range []string{exporter, "device-plugin"} {
			g.Expect(found.Status.Operands).To(ContainElement(And(HaveField("Name", operand), HaveField("Reason", v1.ReasonPaused), HaveField("Message", left))))
		}
	}).Should(Succeed())
	b.Consistently(func() string { return b.unpausedWrites(mark).String() }).WithTimeout(3 * time.Second).Should(BeEmpty())
	b.Expect(b.node("late").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.driver"))
	b.Expect(nodeCondition(b.node("late"))).To(BeNil())
	for name, uid := range pods {
		b.Expect(b.pods()).To(HaveKeyWithValue(name, uid))
	}
}

// unpausedWrites are the operator's writes since the mark, those of its status apart.
func (b *bed) unpausedWrites(mark cluster.Mark) cluster.Calls {
	b.t.Helper()
	var found cluster.Calls
	for _, call := range b.operatorCalls(mark).Writes() {
		if call.Resource != "clusterpolicies" || call.Subresource != "status" {
			found = append(found, call)
		}
	}
	return found
}

// driverStays changes the selector of the driver, and then does what status says.
func (b *bed) driverStays() {
	before := b.podsOf("driver")
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.NodeSelector = v1.Labels{tierKey: "metrics"} })
	var told v1.NodeStatus
	b.Eventually(func(g Gomega) {
		for _, node := range b.policy().Status.Nodes {
			if node.Name == "gpu-00000" {
				told = node
			}
		}
		g.Expect(told.Reason).To(Equal(v1.ReasonUpgradePending))
	}).Should(Succeed())
	b.Expect(told.Ready).To(BeTrue(), "its GPUs can be used")
	b.Expect(b.podsOf("driver")).To(Equal(before))
	command := strings.Fields(told.Message)
	b.Expect(command[:5]).To(Equal([]string{"run", "kubectl", "label", "node", "gpu-00000"}))
	b.relabel(command[4], strings.TrimSuffix(command[5], "-"), "")
	delete(before, "driver on gpu-00000")
	b.Eventually(func() map[string]types.UID { return b.podsOf("driver") }).Should(Equal(before))
}
