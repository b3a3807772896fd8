package assess_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// The checks list the reasons that they give a node, and no others: the rest is of the stages.
func TestChecksListTheirReasons(t *testing.T) {
	g := NewWithT(t)
	ofStages := []string{
		"", v1.ReasonNodeNotReady, v1.ReasonNodeUnreachable, v1.ReasonPodMissing, v1.ReasonStarting, v1.ReasonOperandPaused,
		v1.ReasonUntoleratedTaint, v1.ReasonCrashLoopBackOff, v1.ReasonKernelHeadersMissing, v1.ReasonQuotaExceeded,
		v1.ReasonFailedMount, v1.ReasonFailedCreatePodSandBox,
		v1.ReasonNotAllocatable, v1.ReasonDevicePluginOff, "Reason",
	}
	cases := verdictCases()
	cases["a drain"] = func(in *assess.Input) {
		in.NodePlan.Partitioner = "mig-manager"
		in.Node.Annotations[labels.MIGDrain] = `{"uid":"u","state":"evicts-users","layout":"a"}`
	}
	for _, other := range []neighbour.Neighbour{otherPlugin, otherExporter, {Kind: neighbour.DRADriver, Workload: "w"}} {
		cases[other.Workload] = func(in *assess.Input) { in.Neighbours = []neighbour.Neighbour{other} }
	}
	reported := map[string]bool{v1.ReasonNotSupportedYet: true} // of each refused node, see CheckWorkloadSupported
	for _, change := range cases {
		in := stackNode()
		change(in)
		a := assess.Node(*in)
		reported[a.Reason] = true
	}
	listed := map[string]bool{}
	for _, check := range assess.Checks() {
		g.Expect([]string{check.Name, check.On.Text, check.Effect.Text}).NotTo(ContainElement(""), check.Name)
		for _, reason := range check.Reasons {
			listed[reason] = true
		}
	}
	for _, reason := range ofStages {
		delete(reported, reason)
	}
	g.Expect(reported).To(Equal(listed))
}
