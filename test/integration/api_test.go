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
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestAPI: the API server refuses invalid specs and names the field; missing, empty or null fields mean the defaults.
func TestAPI(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	shown := map[string]bool{}
	for _, c := range refused {
		t.Run("refused: "+c.name, func(t *testing.T) {
			err := e.client.Create(t.Context(), policyOf(e, c.spec), client.DryRunAll)
			t.Log(err)
			e.in(t).Expect(err).To(MatchError(And(ContainSubstring(c.path), ContainSubstring(c.message))))
			for rule := range rules(e) {
				shown[rule] = shown[rule] || strings.Contains(err.Error(), rule)
			}
		})
	}
	t.Run("each rule has a case", func(t *testing.T) {
		all := rules(e)
		for rule := range all {
			if !shown[rule] {
				t.Errorf("no case shows: %s", rule)
			}
		}
		e.in(t).Expect(len(all)).To(BeNumerically(">=", 25), "different rules")
	})
	for name, spec := range accepted {
		t.Run("accepted: "+name, func(t *testing.T) {
			strict := &client.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			}
			e.in(t).Expect(e.client.Create(t.Context(), policyOf(e, spec), strict)).To(Succeed())
		})
	}
	e.run()
	object := policyOf(e, "{}")
	e.create(object)
	e.awaitReady(1)
	for _, spec := range []string{
		"null",
		"{driver: {}, toolkit: {}, devicePlugin: {}, validator: {}, operator: {}, daemonsets: {}, mig: {}, cdi: {}, " +
			"hostPaths: {}}",
		"{driver: null, toolkit: null, devicePlugin: null, validator: null, operator: null, daemonsets: null, mig: null, " +
			"cdi: null, hostPaths: null}",
		"{driver: {manager: {}, startupProbe: {}, resources: {}, env: []}, daemonsets: {rollingUpdate: {}, labels: {}, " +
			"podSecurityContext: {}}, validator: {driver: {}}}",
		"{gfd: {}, dcgm: {}, dcgmExporter: {}, migManager: {}, nodeStatusExporter: {}, gds: {}, gdrcopy: {}}",
		"{gfd: null, dcgm: null, dcgmExporter: null, migManager: null, nodeStatusExporter: null, gds: null, gdrcopy: null}",
		"{driver: {rdma: {}, repoConfig: {}, certConfig: {}, licensingConfig: {}, virtualTopology: {}, kernelModuleConfig: " +
			"{}}, devicePlugin: {config: {}, mps: {}}}",
		`{dcgmExporter: {config: {}, serviceMonitor: {}, service: {}, hpcJobMapping: {}}, migManager: {config: {name: "", ` +
			`default: ""}, gpuClientsConfig: {}}, operator: {metrics: {}}}`,
	} {
		t.Run("means the defaults: "+spec, func(t *testing.T) {
			e := e.in(t)
			before := e.daemonSet(driverName).Generation
			e.Expect(e.edit(object, func() { object.Object["spec"] = policyOf(e, spec).Object["spec"] })).To(Succeed())
			e.awaitReady(1)
			e.Expect(e.daemonSet(driverName).Generation).To(Equal(before), "the same objects")
		})
	}
	for spec, reason := range map[string]string{
		"{driver: {env: [{name: POD_UID, value: a}]}}": v1.ReasonInvalidSpec,
		"{driver: {useNvidiaDriverCRD: true}, nodePools: [{name: a, nodeSelector: {a: b}, " +
			"driver: {version: v1}}]}": v1.ReasonInvalidSpec,
	} {
		t.Run("an invalid operand is reported, and its pods stay: "+spec, func(t *testing.T) {
			e := e.in(t)
			before := e.daemonSet(driverName)
			e.Expect(e.edit(object, func() { object.Object["spec"] = policyOf(e, spec).Object["spec"] })).To(Succeed())
			e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).
				Should(ContainElement(And(HaveField("State", v1.OperandInvalid), HaveField("Reason", reason))))
			e.Expect(e.daemonSet(driverName).UID).To(Equal(before.UID))
			e.Expect(e.daemonSet(driverName).Generation).To(Equal(before.Generation))
		})
	}
}

// TestAPIRatchets: in a policy that was stored without the rules, such as by NVIDIA's definition, valid fields can be
// changed. Invalid fields may stay unchanged, and may be corrected.
func TestAPIRatchets(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{bare: true, timing: simulator.DefaultTiming()})
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(crd.Name)
	e.Expect(e.edit(definition, func() { withoutRules(definition.Object) })).To(Succeed())
	const stored = `{driver: {usePrecompiled: true, version: "595"}, gds: {enabled: true}, toolkit: {version: "a b", env: [{name: A}]},
		cdi: {enabled: false, nriPluginEnabled: true}, daemonsets: {labels: {"a b": c}}, dcgmExporter: {hpcJobMapping: {directory: /a}, podLabelAllowlistRegex: [a]}}`
	e.Eventually(func() error { return e.client.Create(t.Context(), policyOf(e, stored)) }).Should(Succeed())
	e.Expect(e.client.Patch(t.Context(), definition, client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
		client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	e.Eventually(func() error {
		other := policyOf(e, `{toolkit: {version: "a b"}}`)
		other.SetName("other")
		return e.client.Create(t.Context(), other, client.DryRunAll)
	}).Should(MatchError(ContainSubstring("must be a tag")))
	for _, step := range []struct{ name, patch, message string }{
		{"another block", `{"mig":{"strategy":"mixed"}}`, ""},
		{
			"beside the wrong fields",
			`{"driver":{"kernelModuleType":"open"},"toolkit":{"env":[{"name":"A","value":"b"}]},"gds":{"env":[{"name":"A","value":"b"}]},"dcgmExporter":{"hostPID":true}}`,
			"",
		},
		{"a wrong field by another wrong value", `{"toolkit":{"version":"c d"}}`, "must be a tag"},
		{"another contradiction", `{"gdrcopy":{"enabled":true}}`, "must not be set together with gdrcopy.enabled"},
		{"a wrong map grows", `{"daemonsets":{"labels":{"d":"e"}}}`, "keys must be label keys"},
		{
			"put right",
			`{"toolkit":{"version":"v1"},"gds":{"enabled":false},"cdi":null,"daemonsets":{"labels":null},"dcgmExporter":null}`,
			"",
		},
		{"wrong again", `{"gds":{"enabled":true}}`, "must not be set together with gds.enabled"},
	} {
		t.Run(step.name, func(t *testing.T) {
			err := e.client.Patch(t.Context(), policyOf(e, "{}"),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":`+step.patch+`}`)))
			if step.message == "" {
				e.in(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			e.in(t).Expect(err).To(MatchError(ContainSubstring(step.message)))
		})
	}
}

// withoutRules removes the rules from a definition, in place.
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

// rules returns the messages of the definition's rules, without duplicates.
func rules(e *env) map[string]bool {
	e.t.Helper()
	definition := map[string]any{}
	e.Expect(yaml.Unmarshal(crd.ClusterPolicy, &definition)).To(Succeed())
	found := map[string]bool{}
	var collect func(any)
	collect = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			list, _ := value["x-kubernetes-validations"].([]any)
			for _, rule := range list {
				e.Expect(rule).To(HaveKeyWithValue("message", Not(BeEmpty())))
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

// policyOf returns a policy with this spec as a user writes it, not decoded into the Go types.
func policyOf(e *env, spec string) *unstructured.Unstructured {
	e.t.Helper()
	content := map[string]any{}
	e.Expect(yaml.Unmarshal([]byte("spec: "+spec), &content)).To(Succeed())
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content["spec"]}}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policy)
	return object
}
