package fleet_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// Nodes are assessed again whose neighbours have changed; all of them when neighbours become known.
func TestSetNeighbours(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "a"}})
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "b"}})
	expect := func(found neighbour.OnNodes, wanted ...string) {
		t.Helper()
		f.SetNeighbours(found)
		g.Expect(f.NeighboursChanged()).To(HaveLen(min(len(wanted), 1)))
		for len(f.NeighboursChanged()) > 0 {
			<-f.NeighboursChanged()
		}
		g.Expect(f.TakeNeighbourChanges()).To(ConsistOf(wanted))
	}
	_, known := f.Neighbours("a")
	g.Expect(known).To(BeFalse())
	expect(neighbour.OnNodes{}, "a", "b")
	_, known = f.Neighbours("a")
	g.Expect(known).To(BeTrue())
	plugin := neighbour.Neighbour{Kind: neighbour.DevicePlugin, Workload: "DaemonSet x/y"}
	expect(neighbour.OnNodes{"a": {plugin}, "unknown": {plugin}}, "a")
	found, _ := f.Neighbours("a")
	g.Expect(found).To(ConsistOf(plugin))
	expect(neighbour.OnNodes{"a": {plugin}})
	expect(neighbour.OnNodes{"b": {plugin}}, "a", "b")
}

// There is something to look for only while a policy is in force and a node has a GPU.
func TestHasGPUNodes(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	f.Set(cpuNode("cpu", true))
	g.Expect(f.HasGPUNodes()).To(BeFalse(), "no Basis")
	f.Publish(fleet.Basis{Decisions: decide(v1.ClusterPolicySpec{})}, begin)
	g.Expect(f.HasGPUNodes()).To(BeFalse(), "no GPU")
	f.Set(gpuNode("gpu", readiness.Ready))
	g.Expect(f.HasGPUNodes()).To(BeTrue())
	f.Publish(fleet.Basis{KeepNodes: true}, begin)
	g.Expect(f.HasGPUNodes()).To(BeFalse(), "NVIDIA's operator is at work")
}

func TestReportsNeighbours(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	f.Set(gpuNode("a", readiness.Ready))
	g.Expect(f.ReportsNeighbours()).To(BeFalse())
	crashes := assess.Assessment{}
	crashes.Reason = "NotAllocatable"
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "c"}, Latest: crashes})
	g.Expect(f.ReportsNeighbours()).To(BeFalse(), "the operator's own device plugin does not offer its GPUs")
	duplicate := assess.Assessment{}
	duplicate.Reason = "DuplicateOperand"
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "b"}, Latest: duplicate})
	g.Expect(f.ReportsNeighbours()).To(BeTrue())
}
