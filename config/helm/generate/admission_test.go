package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

// The chart adds to whatever list config/admission has, and rejects anything but a list of strings.
func TestTaintsOfTheAdmissionPolicy(t *testing.T) {
	tests := map[string]struct {
		kind, variable, expression, want, err string
	}{
		"the operator's": {
			variable: "ownTaints", expression: "['a.b/c']",
			want: "{{ include \"gpu-operator.ownTaints\" (list $ (list \"a.b/c\")) }}",
		},
		"two": {
			variable: "ownTaints", expression: "['a', 'b']",
			want: "{{ include \"gpu-operator.ownTaints\" (list $ (list \"a\" \"b\")) }}",
		},
		"no list":         {variable: "ownTaints", expression: "params.taints", err: "ownTaints is not a list of strings"},
		"another one":     {variable: "labels", expression: "['a']"},
		"of another kind": {kind: "ConfigMap", variable: "ownTaints", expression: "['a']"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.kind == "" {
				test.kind = "ValidatingAdmissionPolicy"
			}
			variable := object{"name": test.variable, "expression": test.expression}
			snippets := map[string]string{}
			err := openTaints(object{"kind": test.kind, "spec": object{"variables": []any{variable}}}, snippets)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if test.want == "" {
				g.Expect(snippets).To(BeEmpty())
				g.Expect(variable["expression"]).To(Equal(test.expression))
				return
			}
			g.Expect(snippets).To(Equal(map[string]string{tokenTaints: test.want}))
			g.Expect(variable["expression"]).To(Equal(tokenTaints))
		})
	}
}

// The value gpuPodPolicy is the action of the binding for GPU pods, and of no other one; the policy exempts the
// namespace of the release.
func TestModeOfTheGPUPodPolicy(t *testing.T) {
	g := NewWithT(t)
	text, err := gpuPods(root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(And(
		ContainSubstring("\n  validationActions:\n  - {{ title $.Values.gpuPodPolicy }}\n"),
		MatchRegexp(`values:\n +- kube-system\n +- {{ .Release.Namespace [|] quote }}\n`),
		ContainSubstring("{{- if .Values.gpuPodPolicy }}"), HaveSuffix("{{- end }}\n")))
	other := object{
		"kind": "ValidatingAdmissionPolicyBinding", "metadata": object{"name": "gpu-operator-placement"},
		"spec": object{"validationActions": []any{"Deny"}},
	}
	openMode(other, map[string]string{})
	g.Expect(in(other, "spec")["validationActions"]).To(Equal([]any{"Deny"}))
}

// A rule without a name in gpuPodRules is an error, and so is one in the place of another.
func TestNamesOfTheGPUPodRules(t *testing.T) {
	rule := func(variable string) any { return object{"expression": "size(" + variable + ") == 0"} }
	named := []any{rule("variables.tolerates"), rule("variables.severalShares"), rule("variables.choosesDevices")}
	for name, rules := range map[string][]any{
		"":                     named,
		"has 4 rules":          append(named, rule("variables.more")),
		"rule 0 does not read": {named[1], named[0], named[2]},
		"rule 2 does not read": {named[0], named[1], rule("variables.other")},
	} {
		g := NewWithT(t)
		policy := object{
			"kind": "ValidatingAdmissionPolicy", "metadata": object{"name": gpuPodPolicy},
			"spec": object{"validations": rules},
		}
		err := openRules(policy, map[string]string{})
		if name == "" {
			g.Expect(err).NotTo(HaveOccurred())
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(name)))
	}
}
