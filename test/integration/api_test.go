package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAPI: the API server refuses what is wrong and names the field; what is left out, empty or null
// means the defaults.
func TestAPI(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	for name, c := range map[string]struct{ spec, path string }{
		"kernel module type":          {`{driver: {kernelModuleType: closed}}`, "spec.driver.kernelModuleType"},
		"pull policy":                 {`{driver: {imagePullPolicy: Sometimes}}`, "spec.driver.imagePullPolicy"},
		"pull policy of the manager":  {`{driver: {manager: {imagePullPolicy: always}}}`, "spec.driver.manager.imagePullPolicy"},
		"MIG strategy":                {`{mig: {strategy: double}}`, "spec.mig.strategy"},
		"update strategy":             {`{daemonsets: {updateStrategy: Recreate}}`, "spec.daemonsets.updateStrategy"},
		"unavailable":                 {`{daemonsets: {rollingUpdate: {maxUnavailable: "some"}}}`, "spec.daemonsets.rollingUpdate.maxUnavailable"},
		"no pod may be unavailable":   {`{daemonsets: {rollingUpdate: {maxUnavailable: 0}}}`, "spec.daemonsets.rollingUpdate.maxUnavailable"},
		"success threshold":           {`{driver: {startupProbe: {successThreshold: 2}}}`, "spec.driver.startupProbe.successThreshold"},
		"whole image beside version":  {`{toolkit: {image: "nvcr.io/nvidia/container-toolkit", version: v1}}`, "spec.toolkit"},
		"NRI without CDI":             {`{cdi: {enabled: false, nriPluginEnabled: true}}`, "spec.cdi"},
		"relative path":               {`{hostPaths: {driverInstallDir: run/nvidia}}`, "spec.hostPaths.driverInstallDir"},
		"path that climbs":            {`{hostPaths: {driverInstallDir: /run/../etc}}`, "spec.hostPaths.driverInstallDir"},
		"a string where a block goes": {`{driver: "yes"}`, "spec.driver"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			err := b.client.Create(t.Context(), policyOf(b, c.spec))
			b.in(t).Expect(err).To(MatchError(ContainSubstring(c.path)))
		})
	}
	b.run()
	object := policyOf(b, "{}")
	b.create(object)
	b.awaitReady(1, time.Minute)
	for _, spec := range []string{
		"null",
		"{driver: {}, toolkit: {}, devicePlugin: {}, validator: {}, operator: {}, daemonsets: {}, mig: {}, cdi: {}, hostPaths: {}}",
		"{driver: null, toolkit: null, devicePlugin: null, validator: null, operator: null, daemonsets: null, mig: null, cdi: null, hostPaths: null}",
		"{driver: {manager: {}, startupProbe: {}, resources: {}, env: []}, daemonsets: {rollingUpdate: {}, labels: {}, podSecurityContext: {}}, validator: {driver: {}}}",
	} {
		t.Run("means the defaults: "+spec, func(t *testing.T) {
			b := b.in(t)
			before := b.daemonSet(driverName).Generation
			b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			object.Object["spec"] = policyOf(b, spec).Object["spec"]
			b.Expect(b.client.Update(t.Context(), object)).To(Succeed())
			b.awaitReady(1, 30*time.Second)
			b.Expect(b.daemonSet(driverName).Generation).To(Equal(before), "the same objects")
		})
	}
	t.Run("not supported yet is told, and what runs stays", func(t *testing.T) {
		b := b.in(t)
		b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
		object.Object["spec"] = policyOf(b, "{cdi: {nriPluginEnabled: true}}").Object["spec"]
		b.Expect(b.client.Update(t.Context(), object)).To(Succeed())
		b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).WithTimeout(10 * time.Second).
			Should(ContainElement(And(HaveField("State", v1.OperandInvalid), HaveField("Reason", v1.ReasonNotSupportedYet))))
		b.Expect(b.daemonSet(pluginName)).NotTo(BeNil())
	})
}

// policyOf is a policy with this spec as a user writes it, unknown to the Go types.
func policyOf(b *bed, spec string) *unstructured.Unstructured {
	b.t.Helper()
	content := map[string]any{}
	b.Expect(yaml.Unmarshal([]byte("spec: "+spec), &content)).To(Succeed())
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content["spec"]}}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policy)
	return object
}
