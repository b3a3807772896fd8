package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	workload = "nvidia.com/gpu.workload.config"
	audit    = "pod-security.kubernetes.io/audit"
)

// TestAPIEffects: accepted fields have their effect or are reported as having none, and afterwards nothing is
// written.
func TestAPIEffects(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	t.Run("the namespace is labelled for Pod Security Admission, and the labels are removed again", func(t *testing.T) {
		e := e.in(t)
		labels := func() map[string]string {
			live := &corev1.Namespace{}
			e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: namespace}, live)).To(Succeed())
			return live.Labels
		}
		before := labels()
		e.Expect(before).NotTo(HaveKey(audit))
		e.change(`{"psa":{"enabled":true}}`)
		e.Eventually(labels).Should(And(HaveKeyWithValue(audit, "privileged"),
			HaveKeyWithValue("pod-security.kubernetes.io/enforce",
				"privileged"), HaveKeyWithValue("pod-security.kubernetes.io/warn", "privileged")))
		e.awaitReady(2)
		e.settled()
		e.quietFor("with labels", 3*time.Second)
		e.change(`{"psa":null}`)
		e.Eventually(labels).Should(Equal(before))
		e.awaitReady(2)
	})
	t.Run("a node for virtual machines is reported, and the other one is served", func(t *testing.T) {
		e := e.in(t)
		const machine, other = "gpu-00000", "gpu-00001"
		kept := e.podOn("nvidia-driver-daemonset", other).UID
		e.relabel(machine, workload, "vm-passthrough")
		e.Consistently(func() *corev1.Pod { return e.podOn("nvidia-driver-daemonset", machine) }).WithTimeout(2*time.Second).
			ShouldNot(BeNil(), "the label has no effect yet")
		e.change(`{"sandboxWorkloads":{"enabled":true}}`)
		e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).Should(ConsistOf(
			And(HaveField("Name", machine), HaveField("Reason", v1.ReasonNotSupportedYet), HaveField("Ready", false)),
			And(HaveField("Name", other), HaveField("Ready", true))))
		for _, app := range []string{
			"nvidia-driver-daemonset", "nvidia-device-plugin-daemonset", "nvidia-operator-validator",
		} {
			e.Eventually(func() *corev1.Pod { return e.podOn(app, machine) }).Should(BeNil(), app)
		}
		e.Expect(e.podOn("nvidia-driver-daemonset", other).UID).To(Equal(kept))
		conditions := func() any { return e.policy().Status.Conditions }
		e.Eventually(conditions).Should(ContainElements(
			And(HaveField("Type", v1.ConditionReady), HaveField("Reason", v1.ReasonNotSupportedYet)),
			And(HaveField("Type", v1.ConditionUnsupportedFields),
				HaveField("Message", ContainSubstring("spec.sandboxWorkloads.enabled")))))
		e.settled()
		e.quietFor("with a node for virtual machines", 3*time.Second)
		e.relabel(machine, workload, "")
		e.awaitReady(2)
		e.Expect(e.podOn("nvidia-driver-daemonset", other).UID).To(Equal(kept))
	})
}

// change merges this into the spec of the policy.
func (e *env) change(spec string) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), e.policy(),
		client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))).To(Succeed())
}
