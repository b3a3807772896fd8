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
		if !c.bare {
			withChartDefaults(want)
		}
		g.Expect(cmp.Diff(want, find(objects, "ClusterPolicy", "cluster-policy").Object["spec"])).To(BeEmpty())
	}
	if c.then != nil {
		c.then(g, objects)
	}
}

// withChartDefaults adds the chart's own defaults.
func withChartDefaults(spec map[string]any) {
	setDefault(spec, true, "driver", "upgradePolicy", "autoUpgrade")
	setDefault(spec, "single", "mig", "strategy")
}

func setDefault(in map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		inner, isMap := in[key].(map[string]any)
		if !isMap {
			inner = map[string]any{}
			in[key] = inner
		}
		in = inner
	}
	if last := path[len(path)-1]; in[last] == nil {
		in[last] = value
	}
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
