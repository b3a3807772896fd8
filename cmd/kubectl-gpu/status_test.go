package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// manyNodes has nodes that are ready, and some that are not.
func manyNodes(ready, unready int) overview.Overview {
	o := overview.Overview{Summary: overview.Summary{Nodes: ready + unready, ReadyNodes: ready}}
	for i := range unready {
		o.Nodes = append(o.Nodes, overview.Node{
			Name: fmt.Sprintf("bad-%03d", i), Ready: overview.NotReady, Stage: v1.StageDriver, Reason: "CrashLoopBackOff",
			Product: "H100", GPUs: overview.GPUs{Total: 8},
		})
	}
	for i := range ready {
		o.Nodes = append(o.Nodes, overview.Node{
			Name: fmt.Sprintf("good-%03d", i), Ready: overview.Ready, Stage: v1.StageValidated, Product: "H100",
			GPUs: overview.GPUs{Total: 8, Usable: 8},
		})
	}
	return o
}

// Of many nodes the status has one screen: how many are in each state, and the first that are not ready.
func TestStatusOfManyNodes(t *testing.T) {
	g := NewWithT(t)
	text := func(o overview.Overview, wide bool) string { return overviewText(o, shownAt, wide, palette{}) }
	g.Expect(strings.Count(text(manyNodes(28, 2), false), "good-")).To(Equal(28), "few nodes")
	g.Expect(strings.Count(text(manyNodes(29, 2), true), "good-")).To(Equal(29), "wide")
	g.Expect(text(manyNodes(29, 2), false)).To(ContainSubstring(`29 of 31 nodes ready, 0 of 0 GPUs usable

NODES  READY  STAGE      USABLE   PRODUCT  REASON
2      False  Driver     0/16     H100     CrashLoopBackOff
29     True   Validated  232/232  H100     -

NODE     READY  STAGE   USABLE  FREE  PRODUCT  DRIVER  REASON            SINCE
bad-000  False  Driver  0/8     -     H100     -       CrashLoopBackOff  -
bad-001  False  Driver  0/8     -     H100     -       CrashLoopBackOff  -
`))
	long := text(manyNodes(984, 16), false)
	g.Expect(long).To(HaveSuffix("\n1 more are not ready: kubectl gpu status --not-ready lists them.\n"))
	g.Expect(strings.Count(long, "bad-")).To(Equal(15))
	g.Expect(strings.Count(long, "\n")).To(BeNumerically("<=", 24), "one screen")
	g.Expect(text(manyNodes(1000, 0), false)).To(HaveSuffix("\n1000   True   Validated  8000/8000  H100     -\n"))
}

// gpuNode is a GPU node with this condition.
func gpuNode(name, ready string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Node, metadata: {name: %s, uid: %[1]s,
		labels: {nvidia.com/gpu.present: "true", nvidia.com/gpu-driver-upgrade-state: upgrade-done}},
		status: {conditions: [{type: nvidia.com/GPUReady, status: %q, reason: X, message: "x"}]}}`, name, ready)
}

// Nodes are chosen by name and by readiness; the rows alone have no title.
func TestStatusOfSomeNodes(t *testing.T) {
	server := newAPIServer(t, gpuNode("a", "True"), gpuNode("b", "False"), gpuNode("c", "True"))
	config := server.kubeconfig(t)
	for args, test := range map[string]struct {
		// rows are the nodes that are listed, and summary is the number of nodes; empty for no summary.
		rows    []string
		summary string
		code    int
		err     string
	}{
		"":                         {rows: []string{"b", "a", "c"}, summary: "2 of 3 nodes ready"},
		"a b":                      {rows: []string{"b", "a"}, summary: "1 of 2 nodes ready"},
		"--not-ready":              {rows: []string{"b"}, summary: "2 of 3 nodes ready"},
		"a --not-ready":            {summary: "1 of 1 nodes ready"},
		"--no-headers":             {rows: []string{"b", "a", "c"}},
		"c --no-headers":           {rows: []string{"c"}},
		"a z":                      {code: 1, err: "no node z has the label nvidia.com/gpu.present=true"},
		"a -l x=y":                 {code: 2, err: "give names or --selector, not both"},
		"--watch --not-ready":      {code: 2, err: "--watch goes without --not-ready, --no-headers and --sort-by"},
		"--watch --no-headers":     {code: 2, err: "--watch goes without --not-ready, --no-headers and --sort-by"},
		"--sort-by name":           {rows: []string{"a", "b", "c"}, summary: "2 of 3 nodes ready"},
		"--sort-by size":           {code: 2, err: "--sort-by size: give one of [name product reason usable free since]"},
		"--watch --sort-by name":   {code: 2, err: "--watch goes without --not-ready, --no-headers and --sort-by"},
		"--watch -o json":          {code: 2, err: "--watch goes with the formats text and wide only"},
		"a --not-ready -o json":    {rows: nil, summary: `"nodes": []`},
		"b --not-ready -o json":    {rows: nil, summary: `"name": "b"`},
		"--no-headers --not-ready": {rows: []string{"b"}},
	} {
		t.Run(args, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU("", append([]string{"status", "--kubeconfig", config, "--context", "c"},
				strings.Fields(args)...)...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			g.Expect(got.out).To(ContainSubstring(test.summary))
			g.Expect(strings.Contains(got.out, "nodes ready")).To(Equal(strings.Contains(test.summary, "nodes ready")))
			var rows []string
			for line := range strings.Lines(got.out) {
				if fields := strings.Fields(line); len(fields) > 2 && len(fields[0]) == 1 && fields[0] >= "a" {
					rows = append(rows, fields[0])
				}
			}
			g.Expect(rows).To(Equal(test.rows))
			g.Expect(got.out).NotTo(ContainSubstring("UPGRADE"), "none is due")
		})
	}
	g := NewWithT(t)
	g.Expect(kubectlGPU("", "status", "--kubeconfig", config, "--context", "c", "-l", "x=y").code).To(BeZero())
	g.Expect(server.queries()).To(ContainElement("labelSelector=nvidia.com%2Fgpu.present%3Dtrue%2Cx%3Dy&limit=50"))
}

// Equal nodes keep their order, and what is not known comes last.
func TestNodesAreSorted(t *testing.T) {
	two, three := int64(2), int64(3)
	at := func(seconds int64) *metav1.Time {
		return &metav1.Time{Time: shownAt.Add(time.Duration(seconds) * time.Second)}
	}
	nodes := []overview.Node{
		{Name: "c", Product: "H100", Reason: "X", GPUs: overview.GPUs{Usable: 7}, Since: at(1)},
		{
			Name: "a", Product: "A100", GPUs: overview.GPUs{Usable: 8}, Since: at(2),
			Resources: []overview.Resource{{Free: &three}},
		},
		{Name: "b", Product: "H100", Reason: "W", Resources: []overview.Resource{{}, {Free: &two}, {Free: &two}}},
	}
	for key, want := range map[string]string{
		"": "cab", "name": "abc", "product": "acb", "reason": "abc", "usable": "acb", "free": "bac", "since": "acb",
	} {
		sorted, got := slices.Clone(nodes), ""
		sortNodes(sorted, key)
		for i := range sorted {
			got += sorted[i].Name
		}
		NewWithT(t).Expect(got).To(Equal(want), key)
	}
	many := manyNodes(31, 1)
	NewWithT(t).Expect(statusOptions{sortBy: "name"}.text(many, shownAt, palette{})).To(ContainSubstring("good-030"))
}
