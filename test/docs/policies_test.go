package docs

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
)

var (
	yamlBlock   = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")
	policyPatch = regexp.MustCompile(`kubectl patch clusterpolicy \S+ --type=merge -p '([^']+)'`)
)

// foreignSpecs are fields of specs that are fragments of other kinds.
var foreignSpecs = map[string]string{
	"install":  "of a HelmRelease of Flux",
	"source":   "of an Application of Argo CD",
	"template": "of a Deployment or a NodePool of Karpenter",
}

// document is an object, or a part of one, on a page.
type document struct {
	line   int
	object map[string]any
}

// documents returns what the page has as YAML, and the patches of ClusterPolicies in its commands.
func (p page) documents() (all []document, err error) {
	add := func(at int, text string) {
		line := strings.Count(p.text[:at], "\n") + 1
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text))
		for {
			found := document{line: line}
			failed := decoder.Decode(&found.object)
			if errors.Is(failed, io.EOF) {
				return
			}
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s:%d: %w", p.path, line, failed))
				return
			}
			all = append(all, found)
		}
	}
	for _, at := range yamlBlock.FindAllStringSubmatchIndex(p.text, -1) {
		indent := p.text[at[2]:at[3]]
		add(at[0], strings.ReplaceAll("\n"+p.text[at[4]:at[5]], "\n"+indent, "\n"))
	}
	for _, at := range policyPatch.FindAllStringSubmatchIndex(p.text, -1) {
		add(at[0], p.text[at[2]:at[3]])
	}
	return all, err
}

// asObject returns the whole object: a spec alone is one of a ClusterPolicy.
func (d document) asObject() *unstructured.Unstructured {
	spec, isMap := d.object["spec"].(map[string]any)
	if d.object["kind"] != nil || !isMap {
		return &unstructured.Unstructured{Object: d.object}
	}
	for field := range spec {
		if _, foreign := foreignSpecs[field]; foreign {
			return &unstructured.Unstructured{Object: d.object}
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(crd.OfClusterPolicy().Kind)
	object.SetName("cluster-policy")
	return object
}

// refusedPolicies returns what the API server would refuse or drop of the ClusterPolicies and NVIDIADrivers on the
// pages, and how many of these there are.
func refusedPolicies(t *testing.T, all []page) (problems []string, checked int) {
	t.Helper()
	g := NewWithT(t)
	for _, definition := range crd.All() {
		checker, err := schemacheck.New(definition.Text, definition.Kind.Version)
		g.Expect(err).NotTo(HaveOccurred())
		for _, p := range all {
			documents, err := p.documents()
			g.Expect(err).NotTo(HaveOccurred())
			for _, d := range documents {
				object := d.asObject()
				if object.GroupVersionKind() != definition.Kind {
					continue
				}
				checked++
				result := checker.Check(t.Context(), object)
				for _, refused := range result.Refused {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", p.path, d.line, refused))
				}
				for _, unknown := range result.Dropped {
					problems = append(problems, fmt.Sprintf("%s:%d: %s: unknown field", p.path, d.line, unknown))
				}
			}
		}
	}
	return problems, checked
}

// TestPoliciesAreAccepted checks each ClusterPolicy and NVIDIADriver in the docs, whole, as a spec alone or as a patch,
// with the schemas and their rules. All blocks of YAML can be read.
func TestPoliciesAreAccepted(t *testing.T) {
	g := NewWithT(t)
	refused, checked := refusedPolicies(t, skip(pages(t), old))
	g.Expect(refused).To(BeEmpty())
	g.Expect(checked).To(BeNumerically(">", 20), "policies; the search has lost its way")
}

func TestRefusedPoliciesAreFound(t *testing.T) {
	g := NewWithT(t)
	refused, checked := refusedPolicies(t, seeded("# A\n"+
		"```yaml\nspec:\n  cdi: {enabled: false, nriPluginEnabled: true}\n```\n"+
		"1. B:\n   ```yaml\n   apiVersion: nvidia.com/v1\n   kind: ClusterPolicy\n   metadata: {name: a}\n"+
		"   spec: {driver: {VERSION: 1}}\n   ---\n   kind: ConfigMap\n   ```\n"+
		"`kubectl patch clusterpolicy a --type=merge -p '{\"spec\": {\"mig\": {\"strategy\": \"double\"}}}'`\n"+
		"```yaml\nspec: {source: {helm: {}}}\n```\n"+
		"```yaml\napiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: a}\nspec: {driverType: cpu}\n```\n"))
	g.Expect(checked).To(Equal(4))
	g.Expect(refused).To(ConsistOf(
		And(HavePrefix("x:2: spec.cdi"), ContainSubstring("nriPluginEnabled needs CDI")),
		"x:7: spec.driver.VERSION: unknown field",
		And(HavePrefix("x:15: spec.mig.strategy"), ContainSubstring(`"double"`)),
		And(HavePrefix("x:19: spec.driverType"), ContainSubstring(`"cpu"`)),
	))
	_, err := seeded("```yaml\na: b: c\n```\n")[0].documents()
	g.Expect(err).To(MatchError(HavePrefix("x:1: ")))
}
