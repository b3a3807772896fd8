package install

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// faults are what Go's templates print of a null, or of a value of another type than they expect.
var faults = regexp.MustCompile(`<nil>|u003cnil|<no value>|nil pointer|%!`)

// valuesSchema is the part of values.schema.json that the tests read.
type valuesSchema struct {
	Type       []string                `json:"type"`
	Properties map[string]valuesSchema `json:"properties"`
	Then       struct {
		Enum []string `json:"enum"`
	} `json:"then"`
}

// walk calls a function for each value, with its path as in Helm's messages, such as /driver/version.
func (s valuesSchema) walk(path string, do func(path string, s valuesSchema)) {
	for name, inner := range s.Properties {
		do(path+"/"+name, inner)
		inner.walk(path+"/"+name, do)
	}
}

func readValuesSchema(g *WithT) valuesSchema {
	text, err := os.ReadFile(chart + "/values.schema.json")
	g.Expect(err).NotTo(HaveOccurred())
	schema := valuesSchema{}
	g.Expect(json.Unmarshal(text, &schema)).To(Succeed())
	return schema
}

// put sets the value at a path.
func put(values map[string]any, path string, value any) {
	keys := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for _, key := range keys[:len(keys)-1] {
		if _, there := values[key]; !there {
			values[key] = map[string]any{}
		}
		values, _ = values[key].(map[string]any)
	}
	values[keys[len(keys)-1]] = value
}

// renderValues renders the chart with a file of values.
func renderValues(t *testing.T, values any) (string, error) {
	t.Helper()
	text, err := yaml.Marshal(values)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return render(t, "--values", write(t, "values.yaml", string(text)))
}

// Helm's message about a text that is none of those allowed lists them, and no null.
func TestMessagesAboutEnumerationsShowNoNull(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	values, wrong := map[string]any{}, map[string][]string{}
	readValuesSchema(g).walk("", func(path string, s valuesSchema) {
		if len(s.Then.Enum) > 0 {
			put(values, path, "wrong")
			wrong[path] = s.Then.Enum
		}
	})
	g.Expect(len(wrong)).To(BeNumerically(">", 15))
	_, err := renderValues(t, values)
	g.Expect(err).To(HaveOccurred())
	for path, allowed := range wrong {
		g.Expect(err.Error()).To(ContainSubstring("at '" + path + "': value must be one of '" +
			strings.Join(allowed, "', '") + "'\n"))
	}
	g.Expect(err.Error()).NotTo(MatchRegexp(faults.String()))
}

// An empty text for a block, as --set driver= gives, is refused, with the type that the block has.
func TestEmptyTextsForBlocksAreRefused(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	values, blocks := map[string]any{}, 0
	schema := readValuesSchema(g)
	for name, s := range schema.Properties {
		if len(s.Properties) > 0 {
			put(values, name, "")
			blocks++
		}
	}
	g.Expect(blocks).To(BeNumerically(">", 30))
	_, err := renderValues(t, values)
	g.Expect(err).To(HaveOccurred())
	for name := range values {
		g.Expect(err.Error()).To(ContainSubstring("at '/" + name + "': got string, want null or object\n"))
	}
	g.Expect(err.Error()).NotTo(MatchRegexp(faults.String()))
}

// Null may stand for every block, and for every value, and no object shows it.
func TestEveryValueMayBeNull(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	blocks, leaves := map[string]any{}, map[string]any{}
	count := 0
	schema := readValuesSchema(g)
	for name := range schema.Properties {
		blocks[name] = nil
	}
	schema.walk("", func(path string, s valuesSchema) {
		// A security context is one value: profiles in it need a type. gpuPodDeletion excludes podDeletion.
		if len(s.Properties) == 0 && !regexp.MustCompile("/(podSecurityContext|gpuPodDeletion)/").MatchString(path) {
			put(leaves, path, nil)
			count++
		}
	})
	g.Expect(count).To(BeNumerically(">", 450))
	for _, values := range []map[string]any{blocks, leaves} {
		text, err := renderValues(t, values)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(text).NotTo(MatchRegexp(faults.String()))
		objects, err := packaged.Decode(text)
		g.Expect(err).NotTo(HaveOccurred())
		policyOf(g, objects)
	}
}

// Null removes a value. So does null in place of an element of a list, or of an entry of a map, where the chart itself
// reads them: the result is that of the values without it.
func TestNullsRemoveValues(t *testing.T) {
	t.Parallel()
	const preferred, required = "preferredDuringSchedulingIgnoredDuringExecution",
		"requiredDuringSchedulingIgnoredDuringExecution"
	affinity := func(kind, when, terms string) string {
		return "operator: {affinity: {" + kind + ": {" + when + ": " + terms + "}}}"
	}
	for name, test := range map[string]struct {
		values string
		// as are the values that give the same, except for the policy.
		as string
		// message is that of a refusal.
		message string
	}{
		"a flag of the operator": {
			values: "operator: {args: [--x, null, 1, '']}", as: "operator: {args: [--x, '1', '']}",
		},
		"a variable of the operator": {
			values: "operator: {env: [null, {name: A, value: b}]}", as: "operator: {env: [{name: A, value: b}]}",
		},
		"a pull secret of the operator": {
			values: "operator: {imagePullSecrets: [null, a]}", as: "operator: {imagePullSecrets: [a]}",
		},
		"a pull secret of all pods": {
			values: "global: {imagePullSecrets: [null, a]}", as: "operator: {imagePullSecrets: [a]}",
		},
		"a start-up taint":    {values: "nodeStartup: {taints: [null]}", as: "{}"},
		"a rule for GPU pods": {values: "{gpuPodPolicy: warn, gpuPodPolicyDisabledRules: [null]}", as: "gpuPodPolicy: warn"},
		"a number for a rule for GPU pods": {
			values: "{gpuPodPolicy: warn, gpuPodPolicyDisabledRules: [1]}", message: `there is no rule "1"`,
		},
		"a label of the nodes of an NVIDIADriver": {
			values: "driver: {nvidiaDriverCRD: {enabled: true, nodeSelector: {a: null}}}",
			as:     "driver: {nvidiaDriverCRD: {enabled: true}}",
		},
		"one of two labels of the nodes of an NVIDIADriver": {
			values: "driver: {nvidiaDriverCRD: {enabled: true, nodeSelector: {a: null, b: 1}}}",
			as:     "driver: {nvidiaDriverCRD: {enabled: true, nodeSelector: {b: '1'}}}",
		},
		"the price of a model": {
			values: "monitoring: {rules: {enabled: true, pricePerHourByModel: {a: null, b: 2}}}",
			as:     "monitoring: {rules: {enabled: true, pricePerHourByModel: {b: 2}}}",
		},
		"a term about nodes": {
			values: affinity("nodeAffinity", preferred,
				"[null, {preference: {matchExpressions: [{key: a, operator: In}]}}]"),
			message: "the expression about a has In and no values",
		},
		"a required term about nodes": {
			values: affinity("nodeAffinity", required,
				"{nodeSelectorTerms: [null, {matchExpressions: [{key: a, operator: In}]}]}"),
			message: "the expression about a has In and no values",
		},
		"an expression about nodes": {
			values:  affinity("nodeAffinity", preferred, "[{preference: {matchExpressions: [null]}}]"),
			message: `operator.affinity.nodeAffinity: "" is not a key`,
		},
		"a term about pods": {
			values:  affinity("podAffinity", preferred, "[null]"),
			message: "operator.affinity.podAffinity: a term has no topologyKey",
		},
		"a required term about pods": {
			values:  affinity("podAntiAffinity", required, "[null]"),
			message: "operator.affinity.podAntiAffinity: a term has no topologyKey",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text, err := render(t, "--values", write(t, "values.yaml", test.values))
			if test.message != "" {
				g.Expect(err).To(MatchError(And(ContainSubstring(test.message), Not(MatchRegexp(faults.String())))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).NotTo(MatchRegexp(faults.String()))
			want, err := render(t, "--values", write(t, "values.yaml", test.as))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmp.Diff(withoutPolicy(g, want), withoutPolicy(g, text))).To(BeEmpty())
		})
	}
}

// withoutPolicy returns the objects of the chart but the ClusterPolicy, by kind and name.
func withoutPolicy(g *WithT, text string) map[string]any {
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]any{}
	for _, object := range objects {
		if object.GetKind() != "ClusterPolicy" {
			found[object.GetKind()+" "+object.GetName()] = object.Object
		}
	}
	return found
}
