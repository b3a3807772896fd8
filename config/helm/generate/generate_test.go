package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

const root = "../../.."

// A stale chart would not install what the repository has.
func TestTheChartIsUpToDate(t *testing.T) {
	g := NewWithT(t)
	files, err := generate(root, release{version: workingTree})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveKey("values.schema.json"))
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, "config/helm/gpu-operator", name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cmp.Diff(string(want), string(got))).To(BeEmpty(), "%s: run make chart", name)
	}
}

// A JSON patch of NVIDIA's documentation works on the sample as on the policy of the chart.
func TestTheSampleHasTheFieldsThatPatchesReplace(t *testing.T) {
	g := NewWithT(t)
	v, err := newValues()
	g.Expect(err).NotTo(HaveOccurred())
	always, err := v.always()
	g.Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(root, "config/samples/clusterpolicy.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	sample := object{}
	g.Expect(yaml.Unmarshal(text, &sample)).To(Succeed())
	g.Expect(missing("spec", always, in(sample, "spec"))).To(BeEmpty())
	g.Expect(missing("spec", object{"a": object{"b": true}}, object{"a": object{"b": false}})).
		To(Equal([]string{"spec.a.b"}))
}

// missing returns the paths at which an object has no block, or not this value.
func missing(path string, want, got any) []string {
	block, isBlock := want.(object)
	if !isBlock {
		if !reflect.DeepEqual(want, got) {
			return []string{path}
		}
		return nil
	}
	there, isBlock := got.(object)
	if !isBlock {
		return []string{path}
	}
	var paths []string
	for key, value := range block {
		paths = append(paths, missing(path+"."+key, value, there[key])...)
	}
	return paths
}

// Objects of config/ become templates: values set the opened fields, and all others are unchanged.
func TestTemplatesKeepWhatTheyDoNotOpen(t *testing.T) {
	g := NewWithT(t)
	text, err := template(object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"name": "gpu-operator", "namespace": "gpu-operator", "labels": object{"app": "gpu-operator"}},
		"spec":     object{"selector": object{"app": "gpu-operator"}, "note": "{{ braces }}"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(`apiVersion: v1
kind: Service
metadata:
  labels:
    app: gpu-operator
    {{- include "gpu-operator.labels" $ | nindent 4 }}
  name: gpu-operator
  namespace: {{ .Release.Namespace | quote }}
spec:
  note: '{{ "{{" }} braces }}'
  selector:
    app: gpu-operator
`))
}

func TestUnsupportedDeploymentsAreRefused(t *testing.T) {
	container := func(env ...any) object { return object{"name": "gpu-operator", "env": env} }
	image := object{"name": "OPERATOR_IMAGE", "value": "x"}
	tests := map[string]struct {
		containers []any
		err        string
	}{
		"one": {containers: []any{container(image)}},
		"two containers": {
			containers: []any{container(image), container()}, err: "the Deployment must have exactly one container",
		},
		"no own image":     {containers: []any{container()}, err: "has no variable OPERATOR_IMAGE"},
		"no container yet": {err: "the Deployment must have exactly one container"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			deployment := object{"spec": object{"template": object{"spec": object{"containers": test.containers}}}}
			snippets := map[string]string{}
			err := openSettings(deployment, snippets)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			for token := range snippets {
				g.Expect(strings.HasPrefix(token, tokenPrefix)).To(BeTrue(), "%s sorts behind the names of fields", token)
			}
		})
	}
}

// The chart annotates the policy with its notes on values that are not in the policy. All others are the operator's to
// report.
func TestTheOperatorNotesFieldsWithoutEffect(t *testing.T) {
	g := NewWithT(t)
	v, err := newValues()
	g.Expect(err).NotTo(HaveOccurred())
	ofPolicy := 0
	for _, field := range v.without() {
		if field["chart"] == false {
			ofPolicy++
			g.Expect(fieldnotes.Fields()).To(ContainElement(fmt.Sprint("spec.", field["path"])))
		}
	}
	g.Expect(ofPolicy).To(BeNumerically(">", 10))
}
