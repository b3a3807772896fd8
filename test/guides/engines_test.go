package guides

import (
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// engineRules: the expressions of the samples for Kyverno and Gatekeeper, which the API server itself runs here, refuse
// a pod that tolerates the taint of GPU nodes and requests no GPU. They accept every other one.
func engineRules(e *env) {
	kyverno := struct{ Spec engine }{}
	e.decode("kyverno.yaml", &kyverno)
	template := struct {
		Spec struct {
			Targets []struct{ Code []struct{ Source engine } }
		}
	}{}
	e.decode("gatekeeper.yaml", &template)
	gatekeeper := template.Spec.Targets[0].Code[0].Source
	anyObject := map[string]any{"name": "anyObject", "expression": "object"}
	gatekeeper.Variables = append([]any{anyObject}, gatekeeper.Variables...)
	for name, rules := range map[string]engine{"kyverno": kyverno.Spec, "gatekeeper": gatekeeper} {
		e.expectGPUNodesForGPUPods(name, map[string]any{
			"matchConstraints": kyverno.Spec.MatchConstraints,
			"variables":        rules.Variables, "validations": rules.Validations,
		})
	}
}

// engine is what a policy engine shares with the policies of the API server.
type engine struct {
	Variables, Validations []any
	MatchConstraints       map[string]any
}

// decode reads the first object of a sample.
func (e *env) decode(name string, into any) {
	e.t.Helper()
	text, err := yaml.Marshal(e.sample(name)[0])
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(yaml.Unmarshal(text, into)).To(Succeed())
}

// expectGPUNodesForGPUPods checks a policy in a namespace of its own.
func (e *env) expectGPUNodesForGPUPods(name string, spec map[string]any) {
	e.t.Helper()
	team := "engine-" + name
	e.newNamespace(team)
	for kind, spec := range map[string]map[string]any{
		"ValidatingAdmissionPolicy": spec,
		"ValidatingAdmissionPolicyBinding": {
			"policyName": team, "validationActions": []any{"Deny"},
			"matchResources": map[string]any{"namespaceSelector": map[string]any{
				"matchLabels": map[string]any{corev1.LabelMetadataName: team},
			}},
		},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetAPIVersion("admissionregistration.k8s.io/v1")
		object.SetKind(kind)
		object.SetName(team)
		e.Expect(e.client.Create(e.t.Context(), object, strictly)).To(Succeed())
	}
	admitted := func(m mistake) error {
		pod := m.pod()
		pod.Namespace = team
		return e.client.Create(e.t.Context(), pod, client.DryRunAll)
	}
	noGPU := func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }
	e.Eventually(func() error { return admitted(mistake{name: "no-gpu", change: noGPU}) }).Should(
		MatchError(ContainSubstring("requests no GPU")), name)
	for _, m := range []mistake{
		{name: "gpu", change: func(*corev1.Pod) {}},
		{name: "slice", change: func(pod *corev1.Pod) { limit(pod, slice10, "1") }},
		{name: "gpu-of-an-init-container", change: func(pod *corev1.Pod) {
			pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, []corev1.Container{{Name: "rest", Image: "a"}}
		}},
		{name: "tolerates-all", change: func(pod *corev1.Pod) {
			noGPU(pod)
			pod.Spec.Tolerations[0].Key, pod.Spec.Tolerations[0].Effect = "", ""
		}},
		{name: "no-toleration", change: func(pod *corev1.Pod) {
			noGPU(pod)
			pod.Spec.Tolerations = nil
		}},
	} {
		e.Expect(admitted(m)).To(Succeed(), "%s: %s", name, m.name)
	}
}
