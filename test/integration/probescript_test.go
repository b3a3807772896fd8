package integration

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	probeScript = "nvidia-driver-startup-probe"
	// driverWithScript is the DaemonSet in testdata.
	driverWithScript = "nvidia-driver-daemonset-ubuntu24.04-amd64"
)

// TestDriversWithAProbeScriptStay: an operator whose drivers probe themselves takes over from one whose drivers had a
// script for that, in a ConfigMap that they mount. No driver is replaced or outdated, and the ConfigMap is there, and
// repaired, until the last pod that mounts it is gone: a node that starts again needs it. One of the same name that
// somebody else brings later is left alone.
func TestDriversWithAProbeScriptStay(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	const first, second = "gpu-00000", "gpu-00001"
	b.run()
	b.create(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy"}})
	b.awaitReady(2)
	b.Expect(b.script()).To(BeNil(), "a new cluster has none")
	b.stop()
	// That release had the pool in the name of each DaemonSet.
	b.Expect(b.client.Delete(t.Context(), b.daemonSet(driverName))).To(Succeed())
	b.Eventually(func() map[string]types.UID { return b.podsOf("driver") }).Should(BeEmpty())
	b.driversWithScript(first, second)
	before := b.podsOf("driver")

	b.run()
	b.Eventually(func() []string {
		return b.daemonSet(driverWithScript).Spec.Template.Spec.Containers[0].StartupProbe.Exec.Command
	}).
		Should(Equal([]string{"/gpu-operator/gpu-node", "probe", "--within=9s"}))
	b.awaitReady(2)
	b.settled()
	b.Expect(b.podsOf("driver")).To(Equal(before), "no driver is replaced")
	b.noDriverIsOutdated()
	script := b.script()
	b.Expect(script).NotTo(BeNil(), "its pods mount it")

	t.Run("it is repaired while pods mount it", func(t *testing.T) {
		b, text := b.in(t), script.Data["startup-probe.sh"]
		b.Expect(b.edit(script, func() { script.Data["startup-probe.sh"] = "exit 0" })).To(Succeed())
		b.repaired(script, func(g Gomega) { g.Expect(script.Data).To(HaveKeyWithValue("startup-probe.sh", text)) })
		b.Expect(b.client.Delete(t.Context(), script)).To(Succeed())
		b.repaired(script, func(g Gomega) { g.Expect(script.Data).To(HaveKeyWithValue("startup-probe.sh", text)) })
	})
	t.Run("it stays for the last pod", func(t *testing.T) {
		b := b.in(t)
		b.replaceDriver(first)
		b.Expect(mountsScript(b.podOn(driverApp, first))).To(BeFalse())
		b.settled()
		b.Expect(b.script()).NotTo(BeNil(), "the other pod mounts it")
		b.noDriverIsOutdated()
	})
	t.Run("it goes with the last pod", func(t *testing.T) {
		b := b.in(t)
		b.replaceDriver(second)
		b.Eventually(b.script).WithTimeout(10 * time.Second).Should(BeNil())
		b.settled()
		b.quietFor("at rest without the script", 5*time.Second)
	})
	t.Run("one of somebody else is left alone", func(t *testing.T) {
		b := b.in(t)
		foreign := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeScript, Labels: map[string]string{"app": driverApp}},
			Data:       map[string]string{"startup-probe.sh": "of another operator"},
		}
		b.create(foreign)
		version := foreign.ResourceVersion
		b.replaceDriver(first)
		b.settled()
		b.Expect(b.script()).To(HaveField("ResourceVersion", version))
		b.awaitReady(2)
	})
}

// driversWithScript leaves the cluster as the older release left it, with a new driver pod on each of the nodes.
func (b *bed) driversWithScript(nodes ...string) {
	b.t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "driver-with-script.yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		b.Expect(err).NotTo(HaveOccurred())
		references := object.GetOwnerReferences()
		references[0].UID = b.policy().UID
		object.SetOwnerReferences(references)
		b.Expect(b.client.Apply(b.t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("gpu-operator"), client.ForceOwnership)).To(Succeed())
	}
	for _, node := range nodes {
		b.Eventually(func() *corev1.Pod { return b.podOn(driverApp, node) }).ShouldNot(BeNil())
		b.Expect(mountsScript(b.podOn(driverApp, node))).To(BeTrue())
	}
}

// replaceDriver deletes the driver pod of the node, and waits until the next one runs.
func (b *bed) replaceDriver(node string) {
	b.t.Helper()
	before := b.podOn(driverApp, node).UID
	b.deletePod(driverApp, node)
	b.Eventually(func() bool {
		pod := b.podOn(driverApp, node)
		return pod != nil && pod.UID != before && podReady(pod)
	}).Should(BeTrue())
}

func (b *bed) noDriverIsOutdated() {
	b.t.Helper()
	for _, node := range b.policy().Status.Nodes {
		b.Expect(node.Reason).NotTo(Equal(v1.ReasonUpgradePending), node.Message)
	}
	b.Expect(b.readiness()).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", Not(Equal(v1.ReasonUpgradePending)))))
	want := b.daemonSet(driverWithScript).Annotations["nvidia.com/gpu-operator.template-digest"]
	for _, pod := range b.operandPods() {
		if pod.Labels["app"] == driverApp {
			b.Expect(pod.Annotations).To(HaveKeyWithValue("nvidia.com/gpu-operator.template-digest", want), pod.Name)
		}
	}
}

// script is the ConfigMap with the script, nil where there is none.
func (b *bed) script() *corev1.ConfigMap {
	b.t.Helper()
	found := &corev1.ConfigMap{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: probeScript}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.Expect(err).NotTo(HaveOccurred())
	return found
}

func mountsScript(pod *corev1.Pod) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap != nil && volume.ConfigMap.Name == probeScript {
			return true
		}
	}
	return false
}
