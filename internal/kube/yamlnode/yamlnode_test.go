package yamlnode_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
)

// documentOf parses one document.
func documentOf(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var document yaml.Node
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), &document)).To(Succeed())
	return &document
}

func TestRoot(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"", "# nothing", "null", "~", "---\n"} {
		g.Expect(yamlnode.Root(documentOf(t, text))).To(BeNil(), text)
	}
	g.Expect(yamlnode.Root(documentOf(t, "some"))).To(HaveField("Value", "some"))
}

func TestFields(t *testing.T) {
	tests := map[string]struct{ text, exact, fold string }{
		"a scalar":                      {text: "name"},
		"a list":                        {text: "[name]"},
		"no fields":                     {text: "{}"},
		"a value of that text":          {text: "{a: name, b: c}"},
		"null":                          {text: "{a: b, name: null}"},
		"the exact key":                 {text: "{a: b, name: c, d: e}", exact: "c", fold: "c"},
		"another case":                  {text: "{a: b, NAME: c}", fold: "c"},
		"the exact key is preferred":    {text: "{Name: b, name: c}", exact: "c", fold: "c"},
		"null does not hide other keys": {text: "{name: null, Name: b}", fold: "b"},
	}
	valueOf := func(node *yaml.Node) string {
		if node == nil {
			return ""
		}
		return node.Value
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := yamlnode.Root(documentOf(t, test.text))
			g.Expect(valueOf(yamlnode.Field(root, "name"))).To(Equal(test.exact))
			g.Expect(valueOf(yamlnode.FieldFold(root, "name"))).To(Equal(test.fold))
		})
	}
}

func TestHasAlias(t *testing.T) {
	g := NewWithT(t)
	g.Expect(yamlnode.HasAlias(nil)).To(BeFalse())
	for text, want := range map[string]bool{"a: &x b": false, "a: [b, {c: d}]": false, "a: &x b\nc: [d, *x]": true} {
		g.Expect(yamlnode.HasAlias(documentOf(t, text))).To(Equal(want), text)
	}
}

func TestHasKey(t *testing.T) {
	g := NewWithT(t)
	content := yamlnode.Root(documentOf(t, "{a: b, c: d}")).Content
	for key, want := range map[string]bool{"a": true, "c": true, "b": false, "d": false} {
		g.Expect(yamlnode.HasKey(content, key)).To(Equal(want), key)
	}
}

func TestExpanded(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no alias":           {text: "a: [b, c]", want: "a: [b, c]\n"},
		"a scalar":           {text: "a: &x b\nc: *x", want: "a: b\nc: b\n"},
		"an alias in others": {text: "a: &x [1]\nb: &y [*x, 2]\nc: [*y]", want: "a: [1]\nb: [[1], 2]\nc: [[[1], 2]]\n"},
		"a merged mapping": {text: "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3, m: 4}",
			want: "a: {k: 1, l: 2}\nb: {l: 3, m: 4, k: 1}\n"},
		"merged mappings": {text: "a: &x {k: 1}\nb: &y {k: 2, l: 3}\nc: {<<: [*x, *y], m: 4}",
			want: "a: {k: 1}\nb: {k: 2, l: 3}\nc: {m: 4, k: 1, l: 3}\n"},
		"a merged list of no pairs": {text: "{<<: [[a]], b: c}", want: "{b: c}\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			document := documentOf(t, test.text)
			expanded := yamlnode.Expanded(yamlnode.Root(document))
			g.Expect(yamlnode.HasAlias(expanded)).To(BeFalse())
			withoutAnchors(expanded)
			text, err := yaml.Marshal(expanded)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(text)).To(Equal(test.want))
		})
	}
}

func withoutAnchors(node *yaml.Node) {
	node.Anchor = ""
	for _, child := range node.Content {
		withoutAnchors(child)
	}
}

// The copy has at most 10,000 nodes, and an alias of what it is in ends.
func TestExpandedIsBounded(t *testing.T) {
	g := NewWithT(t)
	list := func(elements int) *yaml.Node {
		return yamlnode.Root(documentOf(t, "["+strings.Repeat("a,", elements)+"]"))
	}
	g.Expect(yamlnode.Expanded(list(9_999))).To(HaveField("Content", HaveLen(9_999)))
	g.Expect(yamlnode.Expanded(list(10_000))).To(BeNil())
	mapping := yamlnode.Root(documentOf(t, "{"+strings.Repeat("a: b,", 5_001)+"}"))
	g.Expect(yamlnode.Expanded(mapping)).To(BeNil())
	g.Expect(yamlnode.Expanded(yamlnode.Root(documentOf(t, "a: &x [*x]")))).To(BeNil())
}

func TestEachPair(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"a scalar":  {text: "a"},
		"a list":    {text: "[a, b]"},
		"a mapping": {text: "{a: b, c: {d: e}}", want: []string{"a=b", "c="}},
		"merged ones are first": {text: "{a: b, <<: {c: {i: j}, <<: {e: f}}, g: h}",
			want: []string{"e=f", "c=", "a=b", "g=h"}},
		"an alias of a mapping": {text: "{<<: &x {a: b}, c: *x}", want: []string{"a=b", "c=x"}},
		"each mapping of a list is visited once": {text: "{<<: [&x {a: b}, {c: d}, *x, e], f: g}",
			want: []string{"a=b", "c=d", "f=g"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			yamlnode.EachPair(yamlnode.Root(documentOf(t, test.text)), func(key string, value *yaml.Node) {
				got = append(got, key+"="+value.Value)
			})
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
	yamlnode.EachPair(nil, func(key string, _ *yaml.Node) { t.Errorf("nothing has the key %s", key) })
}

// An alias may stand for the mapping that merges it.
func TestEachPairOfACycle(t *testing.T) {
	var got []string
	document := documentOf(t, "&x {<<: [*x], a: b}")
	yamlnode.EachPair(yamlnode.Root(document), func(key string, _ *yaml.Node) { got = append(got, key) })
	NewWithT(t).Expect(got).To(Equal([]string{"a"}))
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	g.Expect(yamlnode.Target(nil)).To(BeNil())
	pair := yamlnode.Root(documentOf(t, "[&x a, *x]")).Content
	g.Expect(yamlnode.Target(pair[1])).To(BeIdenticalTo(pair[0]))
	g.Expect(yamlnode.Target(pair[0])).To(BeIdenticalTo(pair[0]))
}
