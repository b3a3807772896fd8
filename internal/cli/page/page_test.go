package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

var read = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// document is a page as a browser reads it.
type document struct{ *html.Node }

// written returns the page for an input.
func written(g *WithT, in page.Input) document {
	out := &bytes.Buffer{}
	g.Expect(page.Write(out, in)).To(Succeed())
	// Without scripts, so that what a page has for browsers without them is read, too.
	root, err := html.ParseWithOptions(out, html.ParseOptionEnableScripting(false))
	g.Expect(err).NotTo(HaveOccurred())
	return document{root}
}

// all returns the elements of these kinds below d, in their order.
func (d document) all(kinds ...atom.Atom) []document {
	var found []document
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && slices.Contains(kinds, n.DataAtom) {
			found = append(found, document{n})
		}
	}
	return found
}

// id returns the element with an ID; nil for none.
func (d document) id(id string) document {
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && (document{n}).attr("id") == id {
			return document{n}
		}
	}
	return document{}
}

func (d document) attr(name string) string {
	for _, a := range d.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the words below d, with one space between them.
func (d document) text() string {
	words := &strings.Builder{}
	for n := range d.Descendants() {
		if n.Type == html.TextNode {
			words.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(words.String()), " ")
}

// rows returns the texts of the cells of a part's rows, separated by |, without the heads.
func (d document) rows() []string {
	var all []string
	for _, row := range d.all(atom.Tr) {
		if row.Parent.DataAtom != atom.Tbody {
			continue
		}
		var cells []string
		for _, cell := range row.all(atom.Th, atom.Td) {
			cells = append(cells, cell.text())
		}
		all = append(all, strings.Join(cells, "|"))
	}
	return all
}

var explained = map[string]reasons.Explanation{
	"OperandFailed":    {Meaning: "An operand has failed.", Remedy: "look at the node."},
	"CrashLoopBackOff": {Meaning: "A container ends.", Remedy: "fix the error."},
	"GPULost":          {Meaning: "A GPU is lost.", Remedy: "reboot the node."},
}

// mixed has nodes in each state.
func mixed() overview.Overview {
	since, three, seven, free := metav1.NewTime(read.Add(-90*time.Second)), int64(3), int64(7), int64(3)
	return overview.Overview{
		Policy: &overview.Policy{
			Name: "gpus", Ready: "False", Reason: "OperandFailed", Message: "1 of 4 GPU nodes have failed",
			Limits: []overview.Limit{{Reason: "CRDOutdated", Message: "the API server drops spec.a"}},
			Upgrade: &v1.UpgradeStatus{
				Target: "595.1", Pending: 3, InProgress: 2, Done: 5, Failed: 1, Held: 4, RemainingSeconds: 600, Message: "b waits",
			},
		},
		Summary: overview.Summary{
			Nodes: 4, ReadyNodes: 2, GPUs: 24, UsableGPUs: 15, FreeGPUs: &free, GPUsByClaims: 6, NodesOfUnknownGPUs: 1,
		},
		Nodes: []overview.Node{
			{
				Name: "a", Ready: overview.NotReady, Since: &since, Stage: v1.StageDriver, Operand: "driver",
				Reason: "CrashLoopBackOff", Message: "exit code 1", Product: "H100", GPUs: overview.GPUs{Total: 8},
				Resources: []overview.Resource{{Name: "nvidia.com/gpu", Allocatable: 8, Free: &seven}},
			},
			{Name: "b", Ready: overview.Unknown, Message: "no report", Upgrade: "drain-required"},
			{
				Name: "c", Ready: overview.Ready, Stage: v1.StageValidated, Product: "H100", Driver: "590.1", Health: "GPULost",
				GPUs: overview.GPUs{Total: 8, Usable: 7}, MIG: &overview.MIG{Layout: "mixed"}, Sharing: "mps x4",
				Resources: []overview.Resource{
					{Name: "nvidia.com/gpu", Allocatable: 7, Free: &three}, {Name: "nvidia.com/a", Allocatable: 3, Free: &three},
				},
			},
			{
				Name: "d", Ready: overview.Ready, Stage: v1.StageValidated, Product: "A100", Cordoned: true,
				GPUs:      overview.GPUs{Total: 8, Usable: 8},
				Resources: []overview.Resource{{Name: "nvidia.com/gpu", Allocatable: 8, Free: &three}},
			},
			{
				Name: "e", Ready: overview.Excluded, Reason: "Excluded", Product: "H100", GPUs: overview.GPUs{Total: 8, Usable: 8},
				Resources: []overview.Resource{{Name: "nvidia.com/gpu", Allocatable: 8, Free: &three}},
			},
		},
	}
}

func TestPage(t *testing.T) {
	g := NewWithT(t)
	d := written(g, page.Input{
		Overview: mixed(), Read: read.In(time.FixedZone("x", 3600)), Context: "prod", Reasons: explained,
		Notes: []string{"policy x cannot be decoded"},
	})
	g.Expect(d.all(atom.Title)[0].text()).To(Equal("GPU status of prod"))
	g.Expect(d.all(atom.H1)[0].text()).To(Equal("GPU status prod"))
	g.Expect(d.id("read").text()).To(Equal("Read at 2026-01-02 03:04:05 UTC"))
	g.Expect(d.id("read").all(atom.Time)[0].attr("datetime")).To(Equal("2026-01-02T03:04:05Z"))
	g.Expect(d.id("notices").text()).To(Equal("! Note: policy x cannot be decoded"))
	g.Expect(d.id("summary").text()).To(Equal("Policy gpus ✕ Not ready OperandFailed : 1 of 4 GPU nodes have failed " +
		"Next: look at the node. CRDOutdated : the API server drops spec.a " +
		"Nodes ready 2 of 4 ✕ 1 Not ready ? 1 Unknown ✓ 2 Ready – 1 Excluded " +
		"GPUs usable 15 of 24 The number of GPUs is not known of 1 node. " +
		"Whole GPUs free 3 No pod requests them, and pods can get them. " +
		"6 more are offered by claims (DRA), which are not read."))
	g.Expect(d.id("upgrade").text()).To(Equal("Driver upgrade to 595.1 5 of 11 Done 5 of 11 In progress 2 Pending 3 " +
		"Failed 1 Held 4 Remaining about 10m b waits"))
	unknown := mixed()
	unknown.Policy.Upgrade.RemainingSeconds, unknown.Policy.Upgrade.Target = 0, ""
	g.Expect(written(g, page.Input{Overview: unknown}).id("upgrade").text()).To(And(
		HavePrefix("Driver upgrade 5 of 11 Done"), HaveSuffix("Held 4 b waits")), "without what is not known")
	progress := d.id("upgrade").all(atom.Progress)[0]
	g.Expect([]string{progress.attr("value"), progress.attr("max")}).To(Equal([]string{"5", "11"}))

	g.Expect(d.id("fleet").rows()).To(Equal([]string{
		"H100|3|1|1|1|7/16", "A100|1|1|0|0|8/8", "Unknown|1|0|1|0|0/0",
		"nvidia.com/a|3|0|3|0", "nvidia.com/gpu|23|10|3|10",
		"CrashLoopBackOff|✕ Not ready|1|A container ends. Next: fix the error.", "Excluded|– Excluded|1|",
	}))
	g.Expect(d.id("health").rows()).To(Equal([]string{"c|GPULost|7/8|reboot the node. kubectl gpu explain c"}))
	g.Expect(d.id("none").FirstChild).To(BeNil(), "the style hides the table below a text")
	g.Expect(d.id("nodes").rows()).To(Equal([]string{
		"a|✕ Not ready Driver · driver · 90s|0/8 free: 7|H100|–|CrashLoopBackOff exit code 1 Next: fix the error. " +
			"kubectl gpu explain a",
		"b|? Unknown|unknown|unknown|– drain-required|no report kubectl gpu explain b",
		"c|✓ Ready Validated|7/8 free: 3, 3 a|H100 MIG: mixed (not applied) mps x4|590.1|" +
			"GPULost Next: reboot the node. kubectl gpu explain c",
		"d cordoned|✓ Ready Validated|8/8 free: 3|A100|–|", "e|– Excluded|8/8 free: 3|H100|–|Excluded",
	}))
	var classes []string
	for _, row := range d.id("rows").all(atom.Tr) {
		classes = append(classes, row.attr("class"))
	}
	g.Expect(classes).To(Equal([]string{"bad", "unknown", "good health", "good", "excluded"}), "of the filter")
	g.Expect(d.all(atom.Footer)[0].text()).To(HavePrefix("kubectl gpu " + version.Version + ". "))
}

// The picture of the states is as wide as there are nodes, and has the states side by side.
func TestPicture(t *testing.T) {
	g := NewWithT(t)
	picture := written(g, page.Input{Overview: mixed()}).all(atom.Svg)[0]
	g.Expect(picture.attr("viewBox")).To(Equal("0 0 5 1"))
	var drawn []string
	for n := range picture.Descendants() {
		if n.Data == "rect" {
			drawn = append(drawn, strings.Join([]string{
				document{n}.attr("class"), document{n}.attr("x"), document{n}.attr("width"),
			}, " "))
		}
	}
	g.Expect(drawn).To(Equal([]string{"bad 0 1", "unknown 1 1", "good 2 2", "excluded 4 1"}))
}

// What a page says of the policy, by its state.
func TestPolicyOfAPage(t *testing.T) {
	for name, test := range map[string]struct {
		policy *overview.Policy
		want   string
	}{
		"none":  {nil, "Policy ✕ No ClusterPolicy The operator does nothing until one is created."},
		"ready": {&overview.Policy{Name: "p", Ready: "True", Reason: "Ready"}, "Policy p ✓ Ready Ready"},
		"not assessed": {
			&overview.Policy{Name: "p", Ready: "Unknown", Message: "not reported"}, "Policy p ? Unknown not reported",
		},
		"removal": {
			&overview.Policy{Name: "p", Ready: "False", Reason: v1.ReasonRemoving, Message: "2 nodes have the stack"},
			"Policy p ✕ Not ready Removing : 2 nodes have the stack Next: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			known, err := reasons.All()
			g.Expect(err).NotTo(HaveOccurred())
			d := written(g, page.Input{Overview: overview.Overview{Policy: test.policy}, Reasons: known})
			want := strings.TrimSpace(test.want)
			if strings.HasSuffix(want, "Next:") {
				want += " " + known[test.policy.Reason].Remedy
			}
			g.Expect(d.id("summary").text()).To(HavePrefix(want + " Nodes ready 0 of 0 GPUs usable 0 of 0"))
			g.Expect(d.id("upgrade").text()).To(BeEmpty())
		})
	}
}

// Without nodes the page says so, and without pods that what is free is unknown.
func TestEmptyFleet(t *testing.T) {
	g := NewWithT(t)
	d := written(g, page.Input{})
	g.Expect(d.all(atom.Title)[0].text()).To(Equal("GPU status"))
	g.Expect(d.id("none").text()).To(Equal("No node has the label nvidia.com/gpu.present=true ."))
	g.Expect(d.id("summary").text()).To(HaveSuffix("Whole GPUs free unknown The pods of the cluster are not known."))
	g.Expect(d.all(atom.Svg)).To(BeEmpty())
	for _, part := range []string{"fleet", "health", "upgrade", "notices"} {
		g.Expect(d.id(part).text()).To(BeEmpty(), part)
	}
	d = written(g, page.Input{Overview: overview.Overview{Summary: overview.Summary{Nodes: 2, NodesOfUnknownGPUs: 2}}})
	g.Expect(d.id("summary").text()).To(ContainSubstring("not known of 2 nodes."))

	found := mixed()
	found.Summary.FreeGPUs, found.Nodes = nil, found.Nodes[3:4]
	found.Nodes[0].Resources[0].Free = nil
	d = written(g, page.Input{Overview: found})
	g.Expect(d.id("fleet").rows()).To(ContainElement("nvidia.com/gpu|8|?|?|?"))
}

// With --not-ready the page lists fewer nodes, and counts all.
func TestPageOfNodesThatAreNotReady(t *testing.T) {
	g, found := NewWithT(t), mixed()
	all, some := written(g, page.Input{Overview: found}), written(g, page.Input{Overview: found, OnlyUnready: true})
	for _, part := range []string{"summary", "fleet", "health"} {
		g.Expect(some.id(part).text()).To(Equal(all.id(part).text()), part)
	}
	g.Expect(some.id("rows").rows()).To(Equal(all.id("rows").rows()[:2]))
	found.Nodes = found.Nodes[2:]
	some = written(g, page.Input{Overview: found, OnlyUnready: true})
	g.Expect(some.id("none").text()).To(Equal("No node is listed: all are ready or excluded."))
}

// Nodes with different products and the same reason are one row of the reasons.
func TestReasonsOfSeveralProducts(t *testing.T) {
	g := NewWithT(t)
	node := func(product string, ready overview.Readiness) overview.Node {
		return overview.Node{Product: product, Ready: ready, Reason: "CrashLoopBackOff"}
	}
	d := written(g, page.Input{Overview: overview.Overview{Nodes: []overview.Node{
		node("A100", overview.NotReady), node("H100", overview.NotReady), node("H100", overview.Ready),
	}}, Reasons: explained})
	g.Expect(d.id("fleet").rows()).To(Equal([]string{
		"H100|2|1|1|0|0/0", "A100|1|0|1|0|0/0",
		"CrashLoopBackOff|✕ Not ready|2|A container ends. Next: fix the error.",
		"CrashLoopBackOff|✓ Ready|1|A container ends. Next: fix the error.",
	}))
}

// A live page refreshes itself with its script or without, and shows why it is not up to date.
func TestLivePage(t *testing.T) {
	g := NewWithT(t)
	live := written(g, page.Input{Read: read, Refresh: 5 * time.Second, Failure: errors.New("no <route>")})
	g.Expect(live.all(atom.Body)[0].attr("data-refresh")).To(Equal("5"))
	g.Expect(live.all(atom.Noscript)).To(HaveLen(1))
	refresh := live.all(atom.Noscript)[0]
	g.Expect(refresh.Parent.DataAtom).To(Equal(atom.Head))
	meta := refresh.all(atom.Meta)[0]
	g.Expect([]string{meta.attr("http-equiv"), meta.attr("content")}).To(Equal([]string{"refresh", "5"}))
	g.Expect(live.id("read").text()).To(HaveSuffix("UTC , again every 5 seconds"))
	g.Expect(live.id("notices").text()).To(Equal(
		"✕ The cluster could not be read. This is its state of 2026-01-02 03:04:05 UTC. no <route>"))

	still := written(g, page.Input{Read: read})
	g.Expect(still.all(atom.Body)[0].attr("data-refresh")).To(BeEmpty())
	g.Expect(still.all(atom.Noscript)).To(BeEmpty())
	g.Expect(still.id("read").text()).To(HaveSuffix("UTC"))
}

// The policy of a page admits its own style and script alone, and loads nothing.
func TestContentSecurityPolicy(t *testing.T) {
	g := NewWithT(t)
	for refresh, connect := range map[time.Duration]string{0: "'none'", time.Second: "'self'"} {
		d := written(g, page.Input{Overview: mixed(), Refresh: refresh})
		hash := func(kind atom.Atom) string {
			g.Expect(d.all(kind)).To(HaveLen(1))
			sum := sha256.Sum256([]byte(d.all(kind)[0].FirstChild.Data))
			return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		want := fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; connect-src %s; "+
			"base-uri 'none'; form-action 'none'", hash(atom.Style), hash(atom.Script), connect)
		g.Expect(page.Policy(refresh > 0)).To(Equal(want))
		metas := d.all(atom.Meta)
		at := slices.IndexFunc(metas, func(m document) bool { return m.attr("http-equiv") == "Content-Security-Policy" })
		g.Expect(metas[at].attr("content")).To(Equal(want))
		g.Expect(at).To(BeNumerically("<=", 1), "before all that it is to apply to")
		loads := 0
		for n := range d.Descendants() {
			for _, a := range n.Attr {
				if slices.Contains([]string{"src", "srcset", "href", "action", "data"}, a.Key) {
					loads++
					g.Expect(a.Val).To(Or(HavePrefix("#"), HavePrefix("data:image/svg+xml,")), n.Data)
				}
				g.Expect(a.Key).NotTo(Or(HavePrefix("on"), Equal("style")), "the policy forbids it")
			}
		}
		g.Expect(loads).To(Equal(2), "the icon and the link to the nodes")
	}
}

// hostile are texts that would be a program if a page did not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `" onmouseover="alert(1)`, `'><img src=x onerror=alert(1)>`,
	`</title></style><svg onload=x>`, `javascript:alert(1)`, `{{.Style}}`, "a\u0000b\u202Ec", `]]>--><!--`,
}

// Whatever a text has, it is a text: the page has the same elements and attributes as with harmless texts.
func TestHostileTexts(t *testing.T) {
	shape := func(d document) []string {
		var all []string
		for n := range d.Descendants() {
			if n.Type == html.ElementNode {
				all = append(all, n.Data)
				for _, a := range n.Attr {
					all = append(all, n.Data+" "+a.Key)
				}
			}
			if n.Type == html.CommentNode {
				all = append(all, "comment")
			}
		}
		return all
	}
	build := func(g *WithT, text string) document {
		found := mixed()
		found.Policy.Name, found.Policy.Message, found.Policy.Reason = text, text, text
		found.Policy.Limits[0] = overview.Limit{Reason: text, Message: text}
		found.Policy.Upgrade.Target, found.Policy.Upgrade.Message = text, text
		n := &found.Nodes[2]
		n.Name, n.Operand, n.Reason, n.Message, n.Product, n.Sharing, n.Driver, n.Upgrade, n.Health = text, text, text,
			text, text, text, text, text, text
		n.Stage, n.MIG.Layout, n.MIG.State, n.Resources[1].Name = v1.Stage(text), text, text, text
		known := map[string]reasons.Explanation{text: {Meaning: text, Remedy: text}}
		return written(g, page.Input{
			Overview: found, Read: read, Context: text, Notes: []string{text}, Failure: errors.New(text), Reasons: known,
		})
	}
	g := NewWithT(t)
	harmless := shape(build(g, "harmless"))
	const places = 37 // How often a page shows the text.
	g.Expect(strings.Count(build(g, "harmless").text(), "harmless")).To(Equal(places))
	for _, text := range hostile {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			d := build(g, text)
			g.Expect(shape(d)).To(Equal(harmless))
			shown := strings.Join(strings.Fields(strings.ReplaceAll(text, "\u0000", "\uFFFD")), " ")
			g.Expect(strings.Count(d.text(), shown)).To(BeNumerically(">=", places))
		})
	}
}

// Programs that read pages aloud find their way: the language, one title, headings in order, heads of tables with a
// scope, and a name for each part.
func TestAccessibility(t *testing.T) {
	g := NewWithT(t)
	d := written(g, page.Input{Overview: mixed(), Reasons: explained, Refresh: time.Second})
	g.Expect(d.all(atom.Html)[0].attr("lang")).To(Equal("en"))
	g.Expect(d.all(atom.Main, atom.Header, atom.Footer)).To(HaveLen(3))
	level := 0
	for _, heading := range d.all(atom.H1, atom.H2, atom.H3, atom.H4) {
		next := int(heading.Data[1] - '0')
		g.Expect(next).To(BeNumerically("<=", level+1), heading.text())
		level = next
	}
	g.Expect(d.all(atom.H1)).To(HaveLen(1))
	heads := d.all(atom.Th)
	g.Expect(heads).NotTo(BeEmpty())
	for _, head := range heads {
		want := "col"
		if head.Parent.Parent.DataAtom == atom.Tbody {
			want = "row"
		}
		g.Expect(head.attr("scope")).To(Equal(want), head.text())
	}
	ids := map[string]bool{}
	for n := range d.Descendants() {
		if id := (document{n}).attr("id"); id != "" {
			g.Expect(ids).NotTo(HaveKey(id))
			ids[id] = true
		}
	}
	for n := range d.Descendants() {
		for _, name := range []string{"aria-labelledby", "for"} {
			for id := range strings.FieldsSeq(document{n}.attr(name)) {
				g.Expect(ids).To(HaveKey(id))
			}
		}
		if (document{n}).attr("role") == "region" {
			g.Expect(document{n}.attr("tabindex")).To(Equal("0"), "who has no mouse can scroll it")
		}
	}
	for _, input := range d.all(atom.Input, atom.Select) {
		g.Expect(input.Parent.DataAtom).To(Equal(atom.Label))
	}
	g.Expect(d.id("filter").Attr).To(ContainElement(html.Attribute{Key: "hidden"}), "it does nothing without the script")
}

// A page of a large cluster is written at once, and not large.
func TestLargeCluster(t *testing.T) {
	g := NewWithT(t)
	known, err := reasons.All()
	g.Expect(err).NotTo(HaveOccurred())
	found := overview.Overview{}
	for i := range 1000 {
		n := overview.Node{
			Name: fmt.Sprintf("gpu-%05d.example.com", i), Ready: overview.Ready, Stage: v1.StageValidated, Driver: "580.95.05",
			Product: "NVIDIA-H100-80GB-HBM3", GPUs: overview.GPUs{Total: 8, Usable: 8},
		}
		if i%4 == 0 {
			n.Ready, n.Stage, n.Reason = overview.NotReady, v1.StageDriver, v1.ReasonCrashLoopBackOff
			n.Message = strings.Repeat("the kernel headers are not found ", 6)
		}
		found.Nodes = append(found.Nodes, n)
	}
	out := &bytes.Buffer{}
	began := time.Now()
	g.Expect(page.Write(out, page.Input{Overview: found, Read: read, Reasons: known})).To(Succeed())
	g.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
	g.Expect(out.Len()).To(BeNumerically("<", 900_000))
	root, err := html.Parse(out)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(document{root}.id("rows").all(atom.Tr)).To(HaveLen(1000))
}

// full is an output that takes nothing.
type full struct{}

var errNoSpace = errors.New("no space")

func (full) Write([]byte) (int, error) { return 0, errNoSpace }

func TestWriteFails(t *testing.T) {
	NewWithT(t).Expect(page.Write(full{}, page.Input{})).To(And(
		MatchError(errNoSpace), MatchError("writing the page: no space")))
}
