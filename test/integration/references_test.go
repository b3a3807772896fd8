package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestReferencedObjects: an operand whose ConfigMap does not exist waits and reports it, continues as soon as it
// exists, and is rolled out when it changes. The driver is not: its pods are reported as outdated. Nothing else is
// written.
func TestReferencedObjects(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	object := e.samplePolicy()
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{Config: &v1.DCGMExporterConfigSpec{Name: "metrics"}}
	object.Spec.Driver.SecretEnv = "environment"
	e.create(object)
	e.awaitWaiting("dcgm-exporter",
		"spec.dcgmExporter.config.name: there is no ConfigMap metrics in namespace gpu-operator: create it")
	e.awaitWaiting("driver", "spec.driver.secretEnv: there is no Secret environment in namespace gpu-operator: create it")
	e.Expect(e.written()).NotTo(HaveKey("DaemonSet nvidia-dcgm-exporter"))

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "environment", Namespace: namespace}, StringData: map[string]string{"A": "1"},
	}
	e.create(secret)
	metrics := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "metrics", Namespace: namespace}}
	e.create(metrics)
	e.awaitWaiting("dcgm-exporter",
		"spec.dcgmExporter.config.name: ConfigMap metrics in namespace gpu-operator has no key dcgm-metrics.csv: add it")
	metrics.Data = map[string]string{"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"}
	e.Expect(e.client.Update(t.Context(), metrics)).To(Succeed())
	e.awaitReady(1)

	t.Run("a ConfigMap changes", func(t *testing.T) {
		e := e.in(t)
		before, pod := e.written(), e.podOn("nvidia-dcgm-exporter", "gpu-00000")
		metrics.Data["dcgm-metrics.csv"] += " in C"
		e.Expect(e.client.Update(t.Context(), metrics)).To(Succeed())
		e.Eventually(func() *corev1.Pod { return e.podOn("nvidia-dcgm-exporter", "gpu-00000") }).
			Should(And(Not(BeNil()), HaveField("UID", Not(Equal(pod.UID)))))
		e.awaitReady(1)
		e.Expect(except(e.written(), "dcgm-exporter")).To(Equal(except(before, "dcgm-exporter")))
	})
	t.Run("its labels change", func(t *testing.T) {
		e := e.in(t)
		e.settled()
		mark := e.mark()
		metrics.Labels = map[string]string{"team": "hpc"}
		e.Expect(e.client.Update(t.Context(), metrics)).To(Succeed())
		e.quietSince("labels of a ConfigMap", mark, 3*time.Second)
	})
	t.Run("a Secret of the driver changes", func(t *testing.T) {
		e := e.in(t)
		before, pod := e.written(), e.podOn("nvidia-driver-daemonset", "gpu-00000")
		secret.Data = map[string][]byte{"A": []byte("2")}
		e.Expect(e.client.Update(t.Context(), secret)).To(Succeed())
		e.Eventually(func() *v1.NodeSummary { return e.policy().Status.NodeSummary }).
			Should(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "1/1")))
		e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", pod.UID))
		e.Expect(except(e.written(), "driver")).To(Equal(except(before, "driver")))
	})
	t.Run("it is deleted", func(t *testing.T) {
		e := e.in(t)
		before := e.written()
		e.Expect(e.client.Delete(t.Context(), secret)).To(Succeed())
		e.awaitWaiting("driver", "spec.driver.secretEnv: there is no Secret environment in namespace gpu-operator: create it")
		e.Expect(e.written()).To(Equal(before), "running pods are not touched")
	})
}

func (e *env) awaitWaiting(name, message string) {
	e.t.Helper()
	e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).WithPolling(200 * time.Millisecond).
		Should(ContainElement(And(HaveField("Name", name), HaveField("State", v1.OperandWaiting),
			HaveField("Message", message))))
}

// TestALicenceBesideAKeyOfItsName: the API server refuses a DaemonSet that mounts two files at one path. The licence is
// mounted, the other keys of the ConfigMap too, and the policy reports the key that is not.
func TestALicenceBesideAKeyOfItsName(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "licence", Namespace: namespace},
		StringData: map[string]string{"gridd.conf": "FeatureType=1"},
	})
	e.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "parameters", Namespace: namespace},
		Data:       map[string]string{"gridd.conf": "FeatureType=2", "nvidia.conf": "NVreg_Dummy=1"},
	})
	e.run()
	object := e.samplePolicy()
	object.Spec.Driver.LicensingConfig = &v1.DriverLicensingConfigSpec{SecretName: "licence"}
	object.Spec.Driver.KernelModuleConfig = &v1.KernelModuleConfigSpec{Name: "parameters"}
	e.create(object)
	e.awaitReady(1)
	mounts := e.daemonSet("nvidia-driver-daemonset").Spec.Template.Spec.Containers[0].VolumeMounts
	e.Expect(mounts).To(ContainElements(
		And(HaveField("MountPath", "/drivers/gridd.conf"), HaveField("Name", "licensing-config")),
		And(HaveField("MountPath", "/drivers/nvidia.conf"), HaveField("Name", "module-config"))))
	reported := meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionUnsupportedFields)
	e.Expect(reported).NotTo(BeNil())
	e.Expect(reported.Message).To(ContainSubstring("key gridd.conf of ConfigMap parameters is not mounted, as " +
		"spec.driver.licensingConfig.secretName has the same file"))
}
