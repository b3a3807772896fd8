package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestWhatTheSpecNames: an operand whose ConfigMap does not exist waits and names it, goes on as soon as it
// is there, and is rolled when it changes. The driver is not: its pods say that they are outdated. Nothing
// else is written.
func TestWhatTheSpecNames(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	object := b.samplePolicy()
	object.Spec.DCGMExporter = &v1.DCGMExporterSpec{Config: &v1.DCGMExporterConfigSpec{Name: "metrics"}}
	object.Spec.Driver.SecretEnv = "environment"
	b.create(object)
	b.awaitWaiting("dcgm-exporter", "spec.dcgmExporter.config.name: there is no ConfigMap metrics in namespace gpu-operator: create it")
	b.awaitWaiting("driver", "spec.driver.secretEnv: there is no Secret environment in namespace gpu-operator: create it")
	b.Expect(b.written()).NotTo(HaveKey("DaemonSet nvidia-dcgm-exporter"))

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "environment", Namespace: namespace}, StringData: map[string]string{"A": "1"}}
	b.create(secret)
	metrics := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "metrics", Namespace: namespace}}
	b.create(metrics)
	b.awaitWaiting("dcgm-exporter", "spec.dcgmExporter.config.name: ConfigMap metrics in namespace gpu-operator has no key dcgm-metrics.csv: add it")
	metrics.Data = map[string]string{"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"}
	b.Expect(b.client.Update(t.Context(), metrics)).To(Succeed())
	b.awaitReady(1)

	t.Run("a ConfigMap changes", func(t *testing.T) {
		b := b.in(t)
		before, pod := b.written(), b.podOn("nvidia-dcgm-exporter", "gpu-00000")
		metrics.Data["dcgm-metrics.csv"] += " in C"
		b.Expect(b.client.Update(t.Context(), metrics)).To(Succeed())
		b.Eventually(func() *corev1.Pod { return b.podOn("nvidia-dcgm-exporter", "gpu-00000") }).
			Should(And(Not(BeNil()), HaveField("UID", Not(Equal(pod.UID)))))
		b.awaitReady(1)
		b.Expect(except(b.written(), "dcgm-exporter")).To(Equal(except(before, "dcgm-exporter")))
	})
	t.Run("its labels change", func(t *testing.T) {
		b := b.in(t)
		b.settled()
		mark := b.mark()
		metrics.Labels = map[string]string{"team": "hpc"}
		b.Expect(b.client.Update(t.Context(), metrics)).To(Succeed())
		b.quietSince("labels of a ConfigMap", mark, 3*time.Second)
	})
	t.Run("a Secret of the driver changes", func(t *testing.T) {
		b := b.in(t)
		before, pod := b.written(), b.podOn("nvidia-driver-daemonset", "gpu-00000")
		secret.Data = map[string][]byte{"A": []byte("2")}
		b.Expect(b.client.Update(t.Context(), secret)).To(Succeed())
		b.Eventually(func() *v1.NodeSummary { return b.policy().Status.NodeSummary }).
			Should(And(HaveField("Upgrading", int32(1)), HaveField("ReadyOfTotal", "1/1")))
		b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", pod.UID))
		b.Expect(except(b.written(), "driver")).To(Equal(except(before, "driver")))
	})
	t.Run("it is deleted", func(t *testing.T) {
		b := b.in(t)
		before := b.written()
		b.Expect(b.client.Delete(t.Context(), secret)).To(Succeed())
		b.awaitWaiting("driver", "spec.driver.secretEnv: there is no Secret environment in namespace gpu-operator: create it")
		b.Expect(b.written()).To(Equal(before), "what runs is left alone")
	})
}

func (b *bed) awaitWaiting(name, message string) {
	b.t.Helper()
	b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).WithPolling(200 * time.Millisecond).
		Should(ContainElement(And(HaveField("Name", name), HaveField("State", v1.OperandWaiting), HaveField("Message", message))))
}
