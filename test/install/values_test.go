package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// renderCase is a set of values, and the expected result.
type renderCase struct {
	name string
	// set has assignments separated by spaces, flags are other flags, values is a file.
	set    string
	flags  []string
	values string
	// spec is the complete spec of the policy, as YAML, without the chart's own defaults.
	spec string
	// bare: the chart must not set any defaults.
	bare bool
	// without: there must be no policy.
	without bool
	// then checks other objects.
	then func(g *WithT, objects []*unstructured.Unstructured)
}

// flagsOf returns the Helm flags for a case.
func (c renderCase) flagsOf(t *testing.T) []string {
	t.Helper()
	flags := append(set(c.set), c.flags...)
	if c.values == "" {
		return flags
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	NewWithT(t).Expect(os.WriteFile(path, []byte(c.values), 0o600)).To(Succeed())
	return append(flags, "--values", path)
}

func (c renderCase) check(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	text, err := render(t, c.flagsOf(t)...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	c.checkObjects(g, objects)
}

// checkObjects checks what the chart has rendered.
func (c renderCase) checkObjects(g *WithT, objects []*unstructured.Unstructured) {
	if c.without {
		g.Expect(find(objects, "ClusterPolicy", "cluster-policy")).To(BeNil())
	} else {
		policyOf(g, objects)
		want := map[string]any{}
		if c.spec != "" {
			// As in decoded objects, numbers without a fraction are integers.
			text, err := yaml.YAMLToJSON([]byte(c.spec))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(utiljson.Unmarshal(text, &want)).To(Succeed())
		}
		want = overlay(withoutValues(g, c.bare), want)
		g.Expect(cmp.Diff(want, find(objects, "ClusterPolicy", "cluster-policy").Object["spec"])).To(BeEmpty())
	}
	if c.then != nil {
		c.then(g, objects)
	}
}

// chartDefaults are the values that the chart itself sets.
var chartDefaults = [][]string{
	{"dcgmExporter", "serviceMonitor"}, {"driver", "licensingConfig"}, {"driver", "upgradePolicy"}, {"mig"},
}

// withoutValues returns the spec of the policy without values; bare: also without the chart's own.
func withoutValues(g *WithT, bare bool) map[string]any {
	text, err := os.ReadFile("testdata/policy.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	spec := map[string]any{}
	g.Expect(yaml.Unmarshal(text, &spec)).To(Succeed())
	if !bare {
		return spec
	}
	for _, path := range chartDefaults {
		g.Expect(unstructured.SetNestedMap(spec, map[string]any{}, path...)).To(Succeed())
	}
	return overlay(spec, map[string]any{"driver": map[string]any{"upgradePolicy": map[string]any{
		"autoUpgrade": false, "drain": map[string]any{}, "podDeletion": map[string]any{},
		"waitForCompletion": map[string]any{},
	}}})
}

// overlay adds a tree to another one, and returns the latter; a value of the former takes precedence.
func overlay(below, above map[string]any) map[string]any {
	for key, value := range above {
		inner, isBlock := value.(map[string]any)
		if under, both := below[key].(map[string]any); isBlock && both {
			value = overlay(under, inner)
		}
		below[key] = value
	}
	return below
}

// field returns the part of an object at a path of keys.
func field(g *WithT, object *unstructured.Unstructured, path ...string) any {
	g.Expect(object).NotTo(BeNil(), "the object does not exist")
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	g.Expect(err).NotTo(HaveOccurred())
	return value
}

// manager returns the container of the operator.
func manager(g *WithT, objects []*unstructured.Unstructured) map[string]any {
	containers, _ := field(g, find(objects, "Deployment", "gpu-operator"), "spec", "template", "spec",
		"containers").([]any)
	g.Expect(containers).To(HaveLen(1))
	container, _ := containers[0].(map[string]any)
	return container
}

// pod returns the pod template of the operator.
func pod(g *WithT, objects []*unstructured.Unstructured) map[string]any {
	spec, _ := field(g, find(objects, "Deployment", "gpu-operator"), "spec", "template").(map[string]any)
	return spec
}

func TestCommandsOfGuides(t *testing.T) {
	t.Parallel()
	for _, c := range guides {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func TestEachValueReachesItsField(t *testing.T) {
	t.Parallel()
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func TestTablesHaveTheDocumentedSize(t *testing.T) {
	g := NewWithT(t)
	g.Expect(len(combinations)).To(BeNumerically(">=", 60))
	seen := map[string]bool{}
	for _, c := range append(guides, combinations...) {
		key := strings.Join([]string{c.set, strings.Join(c.flags, " "), c.values}, "|")
		g.Expect(seen).NotTo(HaveKey(key), c.name)
		seen[key] = true
	}
}
