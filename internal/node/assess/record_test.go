package assess_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

func annotated(value string) *corev1.Node {
	node := &corev1.Node{}
	node.Annotations = map[string]string{labels.ReportRecord: value}
	return node
}

// A record is read as it was written, an empty one is none, and what another program has written counts as none.
func TestRecordOfANode(t *testing.T) {
	g := NewWithT(t)
	whole := assess.Record{
		Stage: v1.StageDriver, Operand: "driver", Pod: "driver-x", ByClaims: true, HeldConfig: "c/a", FaultsEnd: 7,
		Neighbours: []neighbour.Neighbour{otherPlugin},
	}
	written := whole.Annotation()
	g.Expect(*written).To(Equal(`{"stage":"Driver","operand":"driver","pod":"driver-x","byClaims":true,` +
		`"neighbours":[{"kind":"device plugin","workload":"DaemonSet kube-system/plugin"}],` +
		`"heldConfig":"c/a","faultsEnd":7}`))
	g.Expect(assess.RecordOf(annotated(*written))).To(Equal(whole))
	g.Expect(whole.IsOf(annotated(*written))).To(BeTrue())
	g.Expect(whole.IsOf(annotated(""))).To(BeFalse())
	g.Expect(whole.IsOf(&corev1.Node{})).To(BeFalse())

	none := assess.Record{}
	g.Expect(none.Annotation()).To(BeNil())
	g.Expect(none.IsOf(&corev1.Node{})).To(BeTrue())
	g.Expect(none.IsOf(annotated(""))).To(BeFalse(), "the annotation is removed")
	for _, other := range []string{"", "x", `{"stage":1}`, `[]`, `{"faultsEnd":"x","stage":"Driver"}`} {
		g.Expect(assess.RecordOf(annotated(other))).To(Equal(none), other)
	}
}

// The stage and the operand of the record precede the cause in the condition, and nothing else is cut off.
func TestCauseOfARecord(t *testing.T) {
	for name, verdict := range map[string]readiness.NodeVerdict{
		"with an operand": {Stage: v1.StageDriver, Operand: "driver", Verdict: readiness.Verdict{
			State: readiness.Failed, Message: "a: b, operand c: d", Pod: "p",
		}},
		"without one": {Stage: v1.StageAllocatable, Verdict: readiness.Verdict{State: readiness.Failed, Message: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, a := NewWithT(t), assess.Assessment{NodeVerdict: verdict}
			record := a.Record(assess.Record{FaultsEnd: 3, Stage: v1.StageToolkit, HeldConfig: "c/a"})
			g.Expect(record).To(Equal(assess.Record{
				Stage: verdict.Stage, Operand: verdict.Operand, Pod: verdict.Pod, FaultsEnd: 3,
			}))
			written := strings.TrimPrefix(a.Cause("node"), "node: ")
			stage, operand, rest := record.Cause(written)
			g.Expect([]any{stage, operand, rest}).To(Equal([]any{verdict.Stage, verdict.Operand, verdict.Message}))
			for _, other := range []assess.Record{{}, {Stage: v1.StageToolkit, Operand: "x"}} {
				stage, operand, rest = other.Cause(written)
				g.Expect([]any{stage, operand, rest}).To(Equal([]any{v1.Stage(""), "", written}))
			}
		})
	}
	ready := assess.Assessment{NodeVerdict: readiness.NodeVerdict{Stage: v1.StageValidated, Operand: "driver"}}
	NewWithT(t).Expect(ready.Record(assess.Record{})).To(Equal(assess.Record{}))
}

// A configuration that other nodes do not read is in the record while the condition reports it.
func TestHeldConfigOfARecord(t *testing.T) {
	g, in := NewWithT(t), stackNode()
	in.HeldConfig = "c/a"
	a := assess.Node(*in)
	g.Expect(a.Record(assess.Record{}).HeldConfig).To(BeEmpty(), "nothing fails")
	in.HeldFails = true
	a = assess.Node(*in)
	g.Expect(a.Record(assess.Record{}).HeldConfig).To(Equal("c/a"))
}

// Only neighbours that the report depends on are in the record, and whether claims get the GPUs.
func TestNeighboursOfARecord(t *testing.T) {
	g, in := NewWithT(t), besideOperands()
	recorded := func() assess.Record {
		a := assess.Node(in)
		return a.Record(assess.Record{})
	}
	draDriver := neighbour.Neighbour{Kind: neighbour.DRADriver, Workload: "DaemonSet dra/gpus"}
	in.Neighbours = []neighbour.Neighbour{otherExporter, otherPlugin, otherDiscovery}
	g.Expect(recorded()).To(Equal(assess.Record{Neighbours: []neighbour.Neighbour{otherPlugin}}))
	in.NodePlan.PluginOff, in.NodePlan.Essential = "spec.devicePlugin.enabled is false", in.NodePlan.Essential[1:]
	delete(in.Pods, "device-plugin")
	g.Expect(recorded()).To(Equal(assess.Record{Neighbours: []neighbour.Neighbour{otherPlugin}}), "it offers the GPUs")
	in.Neighbours, in.Node = []neighbour.Neighbour{otherExporter, draDriver}, gpuNode(nil, nil)
	g.Expect(recorded()).To(Equal(assess.Record{ByClaims: true, Neighbours: []neighbour.Neighbour{draDriver}}))
	delete(in.Pods, "operator-validator")
	g.Expect(recorded().ByClaims).To(BeFalse(), "the node is not ready")
}
