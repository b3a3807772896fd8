package integration

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAPI: the API server refuses what is wrong and names the field; what is left out, empty or null
// means the defaults.
func TestAPI(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	shown := map[string]bool{}
	for _, c := range refused {
		t.Run("refused: "+c.name, func(t *testing.T) {
			err := b.client.Create(t.Context(), policyOf(b, c.spec), client.DryRunAll)
			t.Log(err)
			b.in(t).Expect(err).To(MatchError(And(ContainSubstring(c.path), ContainSubstring(c.message))))
			for rule := range rules(b) {
				shown[rule] = shown[rule] || strings.Contains(err.Error(), rule)
			}
		})
	}
	t.Run("each rule was shown", func(t *testing.T) {
		all := rules(b)
		for rule := range all {
			if !shown[rule] {
				t.Errorf("no case shows: %s", rule)
			}
		}
		b.in(t).Expect(len(all)).To(BeNumerically(">=", 25), "different rules")
	})
	for name, spec := range accepted {
		t.Run("accepted: "+name, func(t *testing.T) {
			strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}, DryRun: []string{metav1.DryRunAll}}
			b.in(t).Expect(b.client.Create(t.Context(), policyOf(b, spec), strict)).To(Succeed())
		})
	}
	b.run()
	object := policyOf(b, "{}")
	b.create(object)
	b.awaitReady(1)
	for _, spec := range []string{
		"null",
		"{driver: {}, toolkit: {}, devicePlugin: {}, validator: {}, operator: {}, daemonsets: {}, mig: {}, cdi: {}, hostPaths: {}}",
		"{driver: null, toolkit: null, devicePlugin: null, validator: null, operator: null, daemonsets: null, mig: null, cdi: null, hostPaths: null}",
		"{driver: {manager: {}, startupProbe: {}, resources: {}, env: []}, daemonsets: {rollingUpdate: {}, labels: {}, podSecurityContext: {}}, validator: {driver: {}}}",
		"{gfd: {}, dcgm: {}, dcgmExporter: {}, migManager: {}, nodeStatusExporter: {}, gds: {}, gdrcopy: {}}",
		"{gfd: null, dcgm: null, dcgmExporter: null, migManager: null, nodeStatusExporter: null, gds: null, gdrcopy: null}",
		"{driver: {rdma: {}, repoConfig: {}, certConfig: {}, licensingConfig: {}, virtualTopology: {}, kernelModuleConfig: {}}, devicePlugin: {config: {}, mps: {}}}",
		`{dcgmExporter: {config: {}, serviceMonitor: {}, service: {}, hpcJobMapping: {}}, migManager: {config: {name: "", default: ""}, gpuClientsConfig: {}}, operator: {metrics: {}}}`,
	} {
		t.Run("means the defaults: "+spec, func(t *testing.T) {
			b := b.in(t)
			before := b.daemonSet(driverName).Generation
			b.Expect(b.edit(object, func() { object.Object["spec"] = policyOf(b, spec).Object["spec"] })).To(Succeed())
			b.awaitReady(1)
			b.Expect(b.daemonSet(driverName).Generation).To(Equal(before), "the same objects")
		})
	}
	for spec, reason := range map[string]string{
		"{driver: {env: [{name: POD_UID, value: a}]}}": v1.ReasonInvalidSpec,
		"{driver: {useNvidiaDriverCRD: true}}":         v1.ReasonNotSupportedYet,
	} {
		t.Run("what cannot be done as asked is told, and what runs stays: "+spec, func(t *testing.T) {
			b := b.in(t)
			before := b.daemonSet(driverName)
			b.Expect(b.edit(object, func() { object.Object["spec"] = policyOf(b, spec).Object["spec"] })).To(Succeed())
			b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).
				Should(ContainElement(And(HaveField("State", v1.OperandInvalid), HaveField("Reason", reason))))
			b.Expect(b.daemonSet(driverName).UID).To(Equal(before.UID))
			b.Expect(b.daemonSet(driverName).Generation).To(Equal(before.Generation))
		})
	}
}

// TestAPIRatchets: a policy that was stored before the API server knew the rules, by NVIDIA's definition for
// one, can be changed in what is not wrong. What is wrong may stay as it is, and may be put right.
func TestAPIRatchets(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{bare: true, timing: simulator.DefaultTiming()})
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(crd.Name)
	b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
	withoutRules(definition.Object)
	b.Expect(b.client.Update(t.Context(), definition)).To(Succeed())
	const stored = `{driver: {usePrecompiled: true, version: "595"}, gds: {enabled: true}, toolkit: {version: "a b", env: [{name: A}]},
		cdi: {enabled: false, nriPluginEnabled: true}, daemonsets: {labels: {"a b": c}}, dcgmExporter: {hpcJobMapping: {directory: /a}, podLabelAllowlistRegex: [a]}}`
	b.Eventually(func() error { return b.client.Create(t.Context(), policyOf(b, stored)) }).Should(Succeed())
	b.Expect(b.client.Patch(t.Context(), definition, client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	b.Eventually(func() error {
		other := policyOf(b, `{toolkit: {version: "a b"}}`)
		other.SetName("other")
		return b.client.Create(t.Context(), other, client.DryRunAll)
	}).Should(MatchError(ContainSubstring("must be a tag")))
	for _, step := range []struct{ name, patch, message string }{
		{"another block", `{"mig":{"strategy":"mixed"}}`, ""},
		{"beside the wrong fields", `{"driver":{"kernelModuleType":"open"},"toolkit":{"env":[{"name":"A","value":"b"}]},"gds":{"env":[{"name":"A","value":"b"}]},"dcgmExporter":{"hostPID":true}}`, ""},
		{"a wrong field by another wrong value", `{"toolkit":{"version":"c d"}}`, "must be a tag"},
		{"another contradiction", `{"gdrcopy":{"enabled":true}}`, "must not be set together with gdrcopy.enabled"},
		{"a wrong map grows", `{"daemonsets":{"labels":{"d":"e"}}}`, "keys must be label keys"},
		{"put right", `{"toolkit":{"version":"v1"},"gds":{"enabled":false},"cdi":null,"daemonsets":{"labels":null},"dcgmExporter":null}`, ""},
		{"wrong again", `{"gds":{"enabled":true}}`, "must not be set together with gds.enabled"},
	} {
		t.Run(step.name, func(t *testing.T) {
			err := b.client.Patch(t.Context(), policyOf(b, "{}"), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+step.patch+`}`)))
			if step.message == "" {
				b.in(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			b.in(t).Expect(err).To(MatchError(ContainSubstring(step.message)))
		})
	}
}

// withoutRules takes the rules out of a definition, in place.
func withoutRules(value any) {
	switch value := value.(type) {
	case map[string]any:
		delete(value, "x-kubernetes-validations")
		for _, inner := range value {
			withoutRules(inner)
		}
	case []any:
		for _, inner := range value {
			withoutRules(inner)
		}
	}
}

// rules are the messages of the definition's rules, each once.
func rules(b *bed) map[string]bool {
	b.t.Helper()
	definition := map[string]any{}
	b.Expect(yaml.Unmarshal(crd.ClusterPolicy, &definition)).To(Succeed())
	found := map[string]bool{}
	var collect func(any)
	collect = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			list, _ := value["x-kubernetes-validations"].([]any)
			for _, rule := range list {
				b.Expect(rule).To(HaveKeyWithValue("message", Not(BeEmpty())))
				if fields, isRule := rule.(map[string]any); isRule {
					found[fmt.Sprint(fields["message"])] = true
				}
			}
			for _, inner := range value {
				collect(inner)
			}
		case []any:
			for _, inner := range value {
				collect(inner)
			}
		}
	}
	collect(definition)
	return found
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
