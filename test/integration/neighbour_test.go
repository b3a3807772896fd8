package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// The DaemonSets of others, with the labels of their manifests and charts.
const (
	othersPlugin   = "nvidia-device-plugin-daemonset"
	othersExporter = "dcgm-exporter"
)

// TestForeignDevicePluginIsReported: the driver takes long on a node where another device plugin offers GPUs. The node
// is reported once that has lasted, and is validated and ready when the operator's own plugin has started. The other
// plugin and another exporter are then reported as beside the operator's; the node is ready, nothing is written at rest
// or by a restart of the operator, and their end shows. Where the operator's plugin is turned off, the node says that
// what it offers is another's.
func TestForeignDevicePluginIsReported(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode})
	e.Expect(err).NotTo(HaveOccurred())
	e.sim.Break("driver", startingNode, simulator.NeverReady)
	e.runOthers(othersPlugin, map[string]string{"name": "nvidia-device-plugin-ds"},
		"nvcr.io/nvidia/k8s-device-plugin:v0.17.1")
	e.runOthers(othersExporter, map[string]string{"app.kubernetes.io/name": "dcgm-exporter"},
		"nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04")
	e.run()
	e.create(e.samplePolicy())
	e.Eventually(e.stage).Should(Equal(v1.StageDriver))
	e.offerGPUs()
	e.Eventually(e.startingReady).WithTimeout(4 * time.Minute).Should(And(
		HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "ForeignDevicePlugin"),
		HaveField("Message", And(ContainSubstring("stage DevicePlugin, operand device-plugin: the node offers 8 nvidia.com"),
			HaveSuffix("another device plugin there: DaemonSet kube-system/"+othersPlugin)))))
	e.sim.Heal("driver", startingNode)
	e.awaitReady(1)
	e.othersAreReported()
	e.othersEnd()
	e.othersInstead()
}

// othersAreReported checks what users see of a device plugin and an exporter beside the operator's, and that it costs
// nothing.
func (e *env) othersAreReported() {
	e.t.Helper()
	message := "DaemonSet kube-system/" + othersPlugin + " is another device plugin: delete it, or set " +
		"spec.devicePlugin.enabled: false; DaemonSet kube-system/" + othersExporter + " is another DCGM exporter: delete " +
		"it, or set spec.dcgmExporter.enabled: false"
	reported := And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "DuplicateDevicePlugin"),
		HaveField("Message", Equal(startingNode+": GPUs can be used; "+message)))
	e.Eventually(e.startingReady).Should(reported)
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ConsistOf(And(
		HaveField("Ready", true), HaveField("Reason", "DuplicateDevicePlugin"),
		HaveField("Message", HavePrefix("DaemonSet kube-system/"+othersPlugin+" is another device plugin: delete it")))))
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", startingNode) }).Should(ContainElement(And(
		HaveField("Type", corev1.EventTypeWarning), HaveField("Reason", "DuplicateDevicePlugin"))))
	e.settled()
	mark := e.mark()
	e.quietSince("beside others", mark, 4*time.Second)
	e.stop()
	e.run()
	e.awaitReady(1)
	e.settled()
	e.Expect(e.operatorCalls(mark).Writes().String()).To(BeEmpty(), "a restart beside others")
	e.Expect(e.startingReady()).To(reported)
}

// othersEnd removes the others.
func (e *env) othersEnd() {
	e.t.Helper()
	for _, name := range []string{othersPlugin, othersExporter} {
		e.Expect(e.client.Delete(e.t.Context(), &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		})).To(Succeed())
	}
	e.Eventually(e.startingReady).WithTimeout(time.Minute).Should(And(
		HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "GPUReady"),
		HaveField("Message", startingNode+": GPUs can be used")))
	e.Eventually(func() []corev1.Event { return e.eventsAbout("Node", startingNode) }).Should(ContainElement(And(
		HaveField("Type", corev1.EventTypeNormal), HaveField("Reason", "GPUReady"))))
}

// othersInstead turns the operator's device plugin off, and lets another one offer the GPUs.
func (e *env) othersInstead() {
	e.t.Helper()
	object := e.policy()
	e.Expect(e.edit(object, func() { object.Spec.DevicePlugin.Enabled = new(false) })).To(Succeed())
	e.Eventually(func() *corev1.Pod { return e.podOn("nvidia-device-plugin-daemonset", startingNode) }).
		WithTimeout(time.Minute).Should(BeNil())
	e.Eventually(func() string {
		e.offerGPUs()
		nodes := e.policy().Status.Nodes
		if len(nodes) != 1 {
			return ""
		}
		return nodes[0].Offers
	}).WithTimeout(time.Minute).WithPolling(time.Second).Should(
		Equal("nvidia.com/gpu: 8, by another device plugin: not validated"))
	e.Eventually(e.startingReady).Should(And(
		HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "GPUReady"), HaveField("Message", startingNode+
			": GPUs can be used; another device plugin offers them, which the operator has not validated")))
}

// runOthers runs a DaemonSet of others on all nodes.
func (e *env) runOthers(name string, labels map[string]string, image string) {
	e.t.Helper()
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:  []corev1.Container{{Name: "main", Image: image}},
				},
			},
		},
	}
	e.create(ds)
	e.Eventually(func() []corev1.Pod {
		pods := &corev1.PodList{}
		e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace("kube-system"), client.MatchingLabels(labels))).
			To(Succeed())
		return pods.Items
	}).WithTimeout(time.Minute).Should(ConsistOf(HaveField("Spec.NodeName", startingNode)))
}

// offerGPUs makes the kubelet advertise GPUs, as another device plugin does.
func (e *env) offerGPUs() {
	e.t.Helper()
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := e.node(startingNode)
		for _, resources := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
			if *resources == nil {
				*resources = corev1.ResourceList{}
			}
			(*resources)["nvidia.com/gpu"] = resource.MustParse("8")
		}
		return e.client.Status().Update(e.t.Context(), node)
	})).To(Succeed())
}

// stage returns the stage of the starting node in the policy's status; empty if it has none.
func (e *env) stage() v1.Stage {
	e.t.Helper()
	for _, node := range e.policy().Status.Nodes {
		return node.Stage
	}
	return ""
}
