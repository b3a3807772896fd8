package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const probeScript = "nvidia-driver-startup-probe"

// TestDriversWithAProbeScriptStay: drivers that were taken over from NVIDIA's operator mount the script of its start-up
// probe from a ConfigMap. None is replaced or outdated, and the ConfigMap is kept and repaired until the last pod that
// mounts it is deleted: a rebooting node needs it. A later ConfigMap of the same name by another writer is not touched.
func TestDriversWithAProbeScriptStay(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	const first, second = "gpu-00000", "gpu-00001"
	e.run()
	e.create(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy"}})
	e.awaitReady(2)
	e.Expect(e.script()).To(BeNil(), "a new cluster has none")
	e.stop()
	e.driversWithScript(first, second)
	before := e.podsOf("driver")

	e.run()
	e.Eventually(func() []string {
		return e.daemonSet(driverName).Spec.Template.Spec.Containers[0].StartupProbe.Exec.Command
	}).
		Should(Equal([]string{"/gpu-operator/gpu-node", "probe", "--within=9s"}))
	e.awaitReady(2)
	e.settled()
	e.Expect(e.podsOf("driver")).To(Equal(before), "no driver is replaced")
	e.noDriverIsOutdated()
	script := e.script()
	e.Expect(script).NotTo(BeNil(), "its pods mount it")
	e.Expect(script.Data["startup-probe.sh"]).To(ContainSubstring("nvidia-smi"))

	t.Run("it is repaired while pods mount it", func(t *testing.T) {
		e, text := e.in(t), script.Data["startup-probe.sh"]
		e.Expect(e.edit(script, func() { script.Data["startup-probe.sh"] = "exit 0" })).To(Succeed())
		e.repaired(script, func(g Gomega) { g.Expect(script.Data).To(HaveKeyWithValue("startup-probe.sh", text)) })
		e.Expect(e.client.Delete(t.Context(), script)).To(Succeed())
		e.repaired(script, func(g Gomega) { g.Expect(script.Data).To(HaveKeyWithValue("startup-probe.sh", text)) })
	})
	t.Run("it stays for the last pod", func(t *testing.T) {
		e := e.in(t)
		e.replaceDriver(first)
		e.Expect(mountsScript(e.podOn(driverApp, first))).To(BeFalse())
		e.settled()
		e.Expect(e.script()).NotTo(BeNil(), "the other pod mounts it")
		e.noDriverIsOutdated()
	})
	t.Run("it is deleted with the last pod", func(t *testing.T) {
		e := e.in(t)
		e.replaceDriver(second)
		e.Eventually(e.script).WithTimeout(eventually).Should(BeNil())
		e.settled()
		e.quietFor("at rest without the script", 5*time.Second)
	})
	t.Run("one of another writer is not touched", func(t *testing.T) {
		e := e.in(t)
		foreign := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeScript, Labels: map[string]string{"app": driverApp}},
			Data:       map[string]string{"startup-probe.sh": "of another operator"},
		}
		e.create(foreign)
		version := foreign.ResourceVersion
		e.replaceDriver(first)
		e.settled()
		e.Expect(e.script()).To(HaveField("ResourceVersion", version))
		e.awaitReady(2)
	})
}

// driversWithScript replaces the drivers by those of a takeover: their pods mount the script, and have the digest of
// the template of this operator.
func (e *env) driversWithScript(nodes ...string) {
	e.t.Helper()
	ds := e.daemonSet(driverName)
	e.Expect(e.client.Delete(e.t.Context(), ds)).To(Succeed())
	e.Eventually(func() map[string]types.UID { return e.podsOf("driver") }).Should(BeEmpty())
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: probeScript}}
	ds.Spec.Template.Spec.Volumes = append(ds.Spec.Template.Spec.Volumes, corev1.Volume{
		Name: "driver-startup-probe-script", VolumeSource: corev1.VolumeSource{ConfigMap: source},
	})
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: driverName, Labels: ds.Labels, Annotations: ds.Annotations,
		OwnerReferences: ds.OwnerReferences,
	}
	script := meta
	script.Name = probeScript
	e.applyAsOperator("v1", "ConfigMap", &corev1.ConfigMap{
		ObjectMeta: script, Data: map[string]string{"startup-probe.sh": "exit 0"},
	})
	e.applyAsOperator("apps/v1", "DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta, Spec: ds.Spec})
	for _, node := range nodes {
		e.Eventually(func() *corev1.Pod { return e.podOn(driverApp, node) }).ShouldNot(BeNil())
		e.Expect(mountsScript(e.podOn(driverApp, node))).To(BeTrue())
	}
}

// applyAsOperator applies an object in the name of the operator.
func (e *env) applyAsOperator(apiVersion, kind string, object client.Object) {
	e.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	e.Expect(err).NotTo(HaveOccurred())
	delete(fields, "status")
	applied := &unstructured.Unstructured{Object: fields}
	applied.SetAPIVersion(apiVersion)
	applied.SetKind(kind)
	e.Expect(e.client.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner("gpu-operator"), client.ForceOwnership)).To(Succeed())
}

// replaceDriver deletes the driver pod of the node, and waits until the next one runs.
func (e *env) replaceDriver(node string) {
	e.t.Helper()
	before := e.podOn(driverApp, node).UID
	e.deletePod(driverApp, node)
	e.Eventually(func() bool {
		pod := e.podOn(driverApp, node)
		return pod != nil && pod.UID != before && podReady(pod)
	}).Should(BeTrue())
}

func (e *env) noDriverIsOutdated() {
	e.t.Helper()
	for _, node := range e.policy().Status.Nodes {
		e.Expect(node.Reason).NotTo(Equal(v1.ReasonUpgradePending), node.Message)
	}
	e.Expect(e.readiness()).To(And(HaveField("Status", metav1.ConditionTrue),
		HaveField("Reason", Not(Equal(v1.ReasonUpgradePending)))))
	want := e.daemonSet(driverName).Annotations["nvidia.com/gpu-operator.template-digest"]
	for _, pod := range e.operandPods() {
		if pod.Labels["app"] == driverApp {
			e.Expect(pod.Annotations).To(HaveKeyWithValue("nvidia.com/gpu-operator.template-digest", want), pod.Name)
		}
	}
}

// script returns the ConfigMap with the script, nil if there is none.
func (e *env) script() *corev1.ConfigMap {
	e.t.Helper()
	found := &corev1.ConfigMap{}
	err := e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: probeScript}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	e.Expect(err).NotTo(HaveOccurred())
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
