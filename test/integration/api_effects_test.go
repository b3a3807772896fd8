package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	workload = "nvidia.com/gpu.workload.config"
	audit    = "pod-security.kubernetes.io/audit"
)

// TestAPIEffects: what the API takes has its effect, or says that it has none, and nothing is written once
// that is done.
func TestAPIEffects(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	t.Run("the namespace is labelled for Pod Security Admission, and given up again", func(t *testing.T) {
		b := b.in(t)
		labels := func() map[string]string {
			live := &corev1.Namespace{}
			b.Expect(b.client.Get(t.Context(), client.ObjectKey{Name: namespace}, live)).To(Succeed())
			return live.Labels
		}
		before := labels()
		b.Expect(before).NotTo(HaveKey(audit))
		b.change(`{"psa":{"enabled":true}}`)
		b.Eventually(labels).Should(And(HaveKeyWithValue(audit, "privileged"),
			HaveKeyWithValue("pod-security.kubernetes.io/enforce", "privileged"), HaveKeyWithValue("pod-security.kubernetes.io/warn", "privileged")))
		b.awaitReady(2)
		b.settled()
		b.quietFor("with labels", 3*time.Second)
		b.change(`{"psa":null}`)
		b.Eventually(labels).Should(Equal(before))
		b.awaitReady(2)
	})
	t.Run("a node for virtual machines is told, and the other one is served", func(t *testing.T) {
		b := b.in(t)
		const machine, other = "gpu-00000", "gpu-00001"
		kept := b.podOn("nvidia-driver-daemonset", other).UID
		b.relabel(machine, workload, "vm-passthrough")
		b.Consistently(func() *corev1.Pod { return b.podOn("nvidia-driver-daemonset", machine) }).WithTimeout(2*time.Second).
			ShouldNot(BeNil(), "the label does not count yet")
		b.change(`{"sandboxWorkloads":{"enabled":true}}`)
		b.Eventually(func() []v1.NodeStatus { return b.policy().Status.Nodes }).Should(ConsistOf(
			And(HaveField("Name", machine), HaveField("Reason", v1.ReasonNotSupportedYet), HaveField("Ready", false)),
			And(HaveField("Name", other), HaveField("Ready", true))))
		for _, app := range []string{"nvidia-driver-daemonset", "nvidia-device-plugin-daemonset", "nvidia-operator-validator"} {
			b.Eventually(func() *corev1.Pod { return b.podOn(app, machine) }).Should(BeNil(), app)
		}
		b.Expect(b.podOn("nvidia-driver-daemonset", other).UID).To(Equal(kept))
		told := func() any { return b.policy().Status.Conditions }
		b.Eventually(told).Should(ContainElements(
			And(HaveField("Type", v1.ConditionReady), HaveField("Reason", v1.ReasonNotSupportedYet)),
			And(HaveField("Type", v1.ConditionUnsupportedFields), HaveField("Message", ContainSubstring("spec.sandboxWorkloads.enabled")))))
		b.settled()
		b.quietFor("with a node for virtual machines", 3*time.Second)
		b.relabel(machine, workload, "")
		b.awaitReady(2)
		b.Expect(b.podOn("nvidia-driver-daemonset", other).UID).To(Equal(kept))
	})
}

// change merges this into the spec of the policy.
func (b *bed) change(spec string) {
	b.t.Helper()
	b.Expect(b.client.Patch(b.t.Context(), b.policy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))).To(Succeed())
}
