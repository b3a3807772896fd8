package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var shownAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func someNodes() overview.Overview {
	since, five, free := metav1.NewTime(shownAt.Add(-90*time.Second)), int64(5), int64(8)
	return overview.Overview{
		Policy: &overview.Policy{
			Name: "gpus", Ready: "False", Reason: "OperandFailed", Message: "1 of 2 GPU nodes have failed",
			Upgrade: &v1.UpgradeStatus{Target: "590", Pending: 1, Message: "a waits"},
		},
		Summary: overview.Summary{Nodes: 2, ReadyNodes: 1, GPUs: 8, UsableGPUs: 7, FreeGPUs: &free},
		Nodes: []overview.Node{
			{Name: "a", Ready: overview.NotReady, Since: &since, Stage: v1.StageDriver, Reason: "CrashLoopBackOff",
				Message: "x\ny"},
			{
				Name: "b", Ready: overview.Ready, Since: &since, Stage: v1.StageValidated, GPUs: overview.GPUs{Total: 8, Usable: 7},
				Resources: []overview.Resource{{Name: "nvidia.com/gpu", Allocatable: 7}, {
					Name: "nvidia.com/mig-1g.10gb", Allocatable: 7, Free: &five,
				}},
				Product: "H100", Driver: "590", MIG: &overview.MIG{Layout: "mixed", State: "pending"},
			},
		},
	}
}

func TestStatusAsText(t *testing.T) {
	g := NewWithT(t)
	text := func(o overview.Overview) string { return overviewText(o, shownAt, false, palette{}) }
	g.Expect(text(someNodes())).To(Equal(`ClusterPolicy gpus is not ready: OperandFailed: 1 of 2 GPU nodes have failed
Driver upgrade to 590: 1 pending, 0 in progress, 0 done, 0 failed, 0 held. a waits
1 of 2 nodes ready, 7 of 8 GPUs usable, 8 whole GPUs free

NODE  READY  STAGE      USABLE  FREE              PRODUCT  MIG              DRIVER  REASON            SINCE
a     False  Driver     -       -                 -        -                -       CrashLoopBackOff  90s
b     True   Validated  7/8     ?, 5 mig-1g.10gb  H100     mixed (pending)  590     -                 90s
`))
	g.Expect(overviewText(someNodes(), shownAt, true, palette{})).To(
		MatchRegexp(`UPGRADE +HEALTH +CORDONED .* MESSAGE\na .* x y\n`))
	g.Expect(text(overview.Overview{})).To(Equal(`No ClusterPolicy: the operator does nothing until one is created.
0 of 0 nodes ready, 0 of 0 GPUs usable

No node has the label nvidia.com/gpu.present=true.
`))
}

// A terminal of 80 columns wraps no row: columns leave in the order of their rank, and lines are broken between words.
func TestStatusOnANarrowTerminal(t *testing.T) {
	g, found := NewWithT(t), someNodes()
	found.Nodes[0].Name, found.Nodes[1].Product = "ip-10-0-112-34.compute.internal", "NVIDIA-H100-80GB-HBM3"
	found.Policy.Message = "1 of 2 GPU nodes have failed: the driver of one cannot be pulled"
	text := overviewText(found, shownAt, false, palette{width: 80})
	g.Expect(text).To(Equal(`ClusterPolicy gpus is not ready: OperandFailed: 1 of 2 GPU nodes have failed:
  the driver of one cannot be pulled
Driver upgrade to 590: 1 pending, 0 in progress, 0 done, 0 failed, 0 held. a
  waits
1 of 2 nodes ready, 7 of 8 GPUs usable, 8 whole GPUs free

NODE                             READY  USABLE  REASON
ip-10-0-112-34.compute.internal  False  -       CrashLoopBackOff
b                                True   7/8     -
Left out for the width: STAGE, FREE, PRODUCT, MIG, DRIVER, SINCE. See -o wide.
`))
	g.Expect(overviewText(found, shownAt, true, palette{width: 80})).To(ContainSubstring("DRIVER"), "wide")
	g.Expect(overviewText(found, shownAt, false, palette{width: 82})).To(ContainSubstring("USABLE  FREE  "), "it fits")
	g.Expect(overviewText(found, shownAt, false, palette{width: 81})).NotTo(ContainSubstring("FREE  "))
	g.Expect(overviewText(found, shownAt, false, palette{width: 20})).To(MatchRegexp("NODE +READY  USABLE  REASON\n"))
	g.Expect(wrap("\x1b[31m123\x1b[0m 456\n", 7)).To(Equal("\x1b[31m123\x1b[0m 456\n"), "a colour takes no room")
	g.Expect(wrap("123 456 7 89\n", 6)).To(Equal("123\n  456\n  7 89\n"))
	rows := &strings.Builder{}
	writeNodes(rows, found.Nodes, shownAt, false, false, palette{width: 80})
	g.Expect(rows.String()).To(HavePrefix("ip-10-0-112-34.compute.internal  False  -    -"), "no titles")
	fleet := groupsText([]overview.Group{{
		Nodes: 1000, Ready: overview.Excluded, Stage: v1.StageDevicePlugin, GPUs: overview.GPUs{Total: 8000, Usable: 7999},
		Product: "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", Reason: "CreateContainerConfigError",
	}}, palette{width: 80})
	g.Expect(fleet).To(MatchRegexp("^NODES  READY +USABLE +REASON\n1000 "))
}

// Whether GPUs that are offered by claims are free is not known: they are neither free nor taken.
func TestGPUsByClaimsAsText(t *testing.T) {
	g, found := NewWithT(t), someNodes()
	found.Nodes[1].ByClaims, found.Nodes[1].Resources, found.Summary.GPUsByClaims = true, nil, 7
	g.Expect(overviewText(found, shownAt, false, palette{})).To(And(
		ContainSubstring("7 of 8 GPUs usable, 8 whole GPUs free, and 7 offered by claims (DRA)\n"),
		MatchRegexp(`b +True +Validated +7/8 +by claims +H100`)))
}

// What limits the operator follows the state of the policy.
func TestLimitsAsText(t *testing.T) {
	found := someNodes()
	found.Policy.Limits = []overview.Limit{{Reason: "CRDOutdated", Message: "the API server drops spec.a"}}
	NewWithT(t).Expect(overviewText(found, shownAt, false, palette{})).To(
		ContainSubstring("1 of 2 GPU nodes have failed\nCRDOutdated: the API server drops spec.a\nDriver upgrade to"))
}

// The policy that counts is the one that the operator acts on, whatever the order of a list.
func TestActivePolicy(t *testing.T) {
	g := NewWithT(t)
	policy := func(name string, age time.Duration) *v1.ClusterPolicy {
		return &v1.ClusterPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(shownAt.Add(-age))},
		}
	}
	g.Expect(activeOf(nil)).To(BeNil())
	young, old := policy("young", time.Minute), policy("old", time.Hour)
	g.Expect(activeOf([]*v1.ClusterPolicy{young, old}).Name).To(Equal("old"))
	g.Expect(activeOf([]*v1.ClusterPolicy{old, young}).Name).To(Equal("old"))
	old.DeletionTimestamp, old.Finalizers = &metav1.Time{Time: shownAt}, []string{labels.RemovalFinalizer}
	g.Expect(activeOf([]*v1.ClusterPolicy{old, young}).Name).To(Equal("young"))
	g.Expect(activeOf([]*v1.ClusterPolicy{old}).Name).To(Equal("old"), "its stack is removed")
}

// Without a terminal only the lines of new and changed nodes are printed, not those whose time passes.
func TestWatchWithoutATerminal(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	shown := newScreen(out, out, false)
	g.Expect(shown.show(someNodes(), nil, shownAt)).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`^NODE .*\na .*\nb .*\n$`))
	out.Reset()
	later := someNodes()
	g.Expect(shown.show(later, nil, shownAt.Add(time.Hour))).To(Succeed())
	g.Expect(out.String()).To(BeEmpty())
	later.Nodes[0].Ready = overview.Ready
	g.Expect(shown.show(later, nil, shownAt.Add(time.Hour))).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`^a +True .*\n$`))
	out.Reset()
	later.Nodes = later.Nodes[:1]
	g.Expect(shown.show(later, nil, shownAt)).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`^b +Gone .*\n$`))
	out.Reset()
	g.Expect(shown.show(later, nil, shownAt)).To(Succeed())
	g.Expect(out.String()).To(BeEmpty())
}

// A policy that cannot be decoded is named while the status is watched: once in each state beside the lines of nodes,
// and each time above a table that replaces the one before.
func TestWatchNamesUndecodablePolicies(t *testing.T) {
	g, out, notes := NewWithT(t), &bytes.Buffer{}, &bytes.Buffer{}
	bad := map[string]error{"bad": errors.New("ClusterPolicy bad cannot be decoded: spec.a")}
	shown := newScreen(out, notes, false)
	for _, undecodable := range []map[string]error{nil, bad, bad, nil, bad} {
		g.Expect(shown.show(someNodes(), undecodable, shownAt)).To(Succeed())
	}
	const line = "kubectl gpu: ClusterPolicy bad cannot be decoded: spec.a\n"
	g.Expect(notes.String()).To(Equal(line + line))
	g.Expect(out.String()).NotTo(ContainSubstring("decoded"))

	out.Reset()
	shown.isTerminal = true
	for range 2 {
		g.Expect(shown.show(someNodes(), bad, shownAt)).To(Succeed())
	}
	g.Expect(strings.Count(out.String(), line+"ClusterPolicy")+strings.Count(out.String(), line+"No ClusterPolicy")).
		To(Equal(2), out.String())
}

// The titles are printed once, also while there is no node.
func TestWatchWithoutNodes(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	shown := newScreen(out, out, false)
	for range 2 {
		g.Expect(shown.show(overview.Overview{}, nil, shownAt)).To(Succeed())
	}
	g.Expect(out.String()).To(MatchRegexp(`^NODE .*\n$`))
}
