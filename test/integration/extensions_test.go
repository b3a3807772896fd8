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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	mirror   = "mirror.local:5000/proxy"
	exporter = "dcgm-exporter"
	tierKey  = "example.com/tier"
)

// TestExtensions: all images come from a mirror, with proxies and certificates for every container. A paused policy
// is reported and nothing is changed, whatever happens, until it is resumed. A node selector removes an operand from
// a node, and no other pod; a driver stays.
func TestExtensions(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	e.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "authorities"}, Data: map[string]string{
			"ca-bundle.crt": "-----BEGIN CERTIFICATE-----",
		},
	})
	e.relabel("gpu-00001", tierKey, "metrics")
	e.relabel("gpu-00002", tierKey, "metrics")
	e.run()
	object := e.samplePolicy()
	object.Spec.Global = &v1.GlobalSpec{
		Registry: mirror, Proxy: &v1.ProxySpec{HTTPSProxy: "http://proxy.local:3128"}, CABundle: &v1.CABundleSpec{
			ConfigMapName: "authorities",
		},
	}
	e.create(object)
	e.awaitReady(3)
	before := e.pods()
	t.Run("every container has the mirror, the proxy and the certificates",
		func(t *testing.T) { e.in(t).reachesEveryContainer() })
	t.Run("a paused policy only has its status written", func(t *testing.T) { e.in(t).pausedOnlyWritesStatus() })
	t.Run("it resumes immediately, and pods leave the unselected node", func(t *testing.T) {
		e := e.in(t)
		e.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = nil })
		e.awaitReady(4)
		e.Eventually(func() map[string]types.UID { return e.podsOf(exporter) }).Should(And(
			HaveLen(2), HaveKey(exporter+" on gpu-00001"), HaveKey(exporter+" on gpu-00002")))
		for name, uid := range before {
			if name != exporter+" on gpu-00000" {
				e.Expect(e.pods()).To(HaveKeyWithValue(name, uid), "no other pod was touched")
			}
		}
		e.Eventually(func() map[string]string {
			return e.node("gpu-00001").Labels
		}).Should(HaveKeyWithValue("nvidia.com/gpu.present", "true"))
		e.Expect(e.node("gpu-00000").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy." + exporter))
		e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ContainElement(And(
			HaveField("Name", "gpu-00000"), HaveField("Ready", true), HaveField("Reason", v1.ReasonNotSelected),
			HaveField("Message",
				"does not run dcgm-exporter: spec.dcgmExporter.nodeSelector requires label example.com/tier=metrics"))))
		e.Expect(e.policy().Status.Operands).To(ContainElement(And(
			HaveField("Name", exporter), HaveField("State", v1.OperandReady), HaveField("Desired", int32(2)))))
	})
	t.Run("a driver stays on an unselected node, and the command removes it", func(t *testing.T) { e.in(t).driverStays() })
	t.Run("the label of a node restores its pod", func(t *testing.T) {
		e := e.in(t)
		e.relabel("gpu-00000", tierKey, "metrics")
		e.Eventually(func() map[string]types.UID { return e.podsOf(exporter) }).Should(HaveKey(exporter + " on gpu-00000"))
	})
}

// relabel sets a label of a node as an administrator does; an empty value removes it.
func (e *env) relabel(node, key, value string) {
	e.t.Helper()
	text := `"` + value + `"`
	if value == "" {
		text = "null"
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":`+text+`}}}`))
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)).To(Succeed())
}

// pods returns the UIDs of the operands' pods, by operand and node.
func (e *env) pods() map[string]types.UID { return e.podsOf("") }

func (e *env) podsOf(operand string) map[string]types.UID {
	e.t.Helper()
	found := map[string]types.UID{}
	for _, pod := range e.operandPods() {
		if name := pod.Labels[labels.Operand]; operand == "" || name == operand {
			found[name+" on "+pod.Spec.NodeName] = pod.UID
		}
	}
	return found
}

func (e *env) operandPods() []corev1.Pod {
	e.t.Helper()
	list := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace),
		client.HasLabels{labels.Operand})).To(Succeed())
	return list.Items
}

func (e *env) reachesEveryContainer() {
	pods := e.operandPods()
	e.Expect(len(pods)).To(BeNumerically(">=", 3*6))
	for _, pod := range pods {
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			where := pod.Name + "/" + container.Name
			e.Expect(container.Image).To(HavePrefix(mirror+"/"), where)
			e.Expect(container.Env).To(ContainElements(
				corev1.EnvVar{Name: "https_proxy", Value: "http://proxy.local:3128"},
				corev1.EnvVar{Name: "SSL_CERT_FILE", Value: "/etc/gpu-operator/ca/ca-bundle.crt"}), where)
			e.Expect(container.VolumeMounts).To(ContainElement(And(HaveField("MountPath", "/etc/gpu-operator/ca"),
				HaveField("ReadOnly", true))), where)
		}
	}
	e.Expect(e.policy().Status.Pools).To(ContainElement(HaveField("Image", HavePrefix(mirror+"/nvidia/driver:"))))
}

// pausedOnlyWritesStatus causes a changed spec, a changed object, a lost label of a node, and a new node. The status
// reports all of them.
func (e *env) pausedOnlyWritesStatus() {
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
	e.Eventually(func() []metav1.Condition { return e.policy().Status.Conditions }).Should(ContainElement(And(
		HaveField("Type", v1.ConditionReady), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonPaused),
		HaveField("Message",
			"spec.paused is true, so the operator changes nothing; Reconciled: 3 of 3 GPU nodes are ready"))))
	mark, pods := e.mark(), e.pods()

	e.respec(func(spec *v1.ClusterPolicySpec) {
		spec.DCGMExporter = &v1.DCGMExporterSpec{
			PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{tierKey: "metrics"}},
			Service:       &v1.DCGMExporterServiceSpec{InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)},
		}
	})
	set := e.daemonSet(pluginName)
	e.Expect(e.edit(set, func() { delete(set.Labels, "app") })).To(Succeed())
	e.relabel("gpu-00001", "nvidia.com/gpu.present", "")
	_, err := e.sim.AddNode(e.t.Context(), simulator.NodeSpec{Name: "late"})
	e.Expect(err).NotTo(HaveOccurred())

	const left = "1 of its objects differ from the spec and are not updated while spec.paused is true"
	e.Eventually(func(g Gomega) {
		found := e.policy()
		g.Expect(found.Status.ObservedGeneration).To(Equal(found.Generation))
		g.Expect(found.Status.State).To(Equal(v1.StateNotReady))
		g.Expect(found.Status.NodeSummary.ReadyOfTotal).To(Equal("3/4"))
		g.Expect(found.Status.Conditions).To(ContainElement(And(HaveField("Type", v1.ConditionReady),
			HaveField("Reason", v1.ReasonPaused))))
		g.Expect(found.Status.Nodes).To(ContainElement(And(HaveField("Name", "late"), HaveField("Ready", false),
			HaveField("Reason", v1.ReasonPodMissing))))
		for _, operand := range []string{exporter, "device-plugin"} {
			g.Expect(found.Status.Operands).To(ContainElement(And(HaveField("Name", operand),
				HaveField("Reason", v1.ReasonPaused), HaveField("Message", left))))
		}
	}).Should(Succeed())
	e.Consistently(func() string { return e.unpausedWrites(mark).String() }).WithTimeout(3 * time.Second).Should(BeEmpty())
	e.Expect(e.node("late").Labels).NotTo(HaveKey("nvidia.com/gpu.deploy.driver"))
	e.Expect(nodeCondition(e.node("late"))).To(BeNil())
	for name, uid := range pods {
		e.Expect(e.pods()).To(HaveKeyWithValue(name, uid))
	}
}

// unpausedWrites returns the operator's writes since the mark, without those of its status.
func (e *env) unpausedWrites(mark cluster.Mark) cluster.Calls {
	e.t.Helper()
	var found cluster.Calls
	for _, call := range e.operatorCalls(mark).Writes() {
		if call.Resource != "clusterpolicies" || call.Subresource != "status" {
			found = append(found, call)
		}
	}
	return found
}

// driverStays changes the selector of the driver, and then follows the status.
func (e *env) driverStays() {
	before := e.podsOf("driver")
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.NodeSelector = v1.Labels{tierKey: "metrics"} })
	var reported v1.NodeStatus
	e.Eventually(func(g Gomega) {
		for _, node := range e.policy().Status.Nodes {
			if node.Name == "gpu-00000" {
				reported = node
			}
		}
		g.Expect(reported.Reason).To(Equal(v1.ReasonUpgradePending))
	}).Should(Succeed())
	e.Expect(reported.Ready).To(BeTrue(), "its GPUs can be used")
	e.Expect(e.podsOf("driver")).To(Equal(before))
	command := strings.Fields(reported.Message)
	e.Expect(command[:5]).To(Equal([]string{"run", "kubectl", "label", "node", "gpu-00000"}))
	e.relabel(command[4], strings.TrimSuffix(command[5], "-"), "")
	delete(before, "driver on gpu-00000")
	e.Eventually(func() map[string]types.UID { return e.podsOf("driver") }).Should(Equal(before))
}
