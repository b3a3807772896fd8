package fleet_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// Nodes are assessed again whose verdict has changed, and a pass is due. Before the first verdicts, all nodes with
// faults may show others.
func TestSetHealthActions(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	faulty := assess.Assessment{Health: &assess.Health{Report: gpuhealth.Report{Faults: make([]gpuhealth.Fault, 1)}}}
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "faulty"}, Latest: faulty})
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "healthy"}})
	set := func(verdicts map[string]healthaction.Verdict) (changed []string, due bool) {
		for len(f.Changed()) > 0 {
			<-f.Changed()
		}
		f.SetHealthActions(verdicts)
		return f.TakeHealthChanges(), len(f.Changed()) > 0
	}
	expect := func(verdicts map[string]healthaction.Verdict, wanted ...string) {
		t.Helper()
		changed, due := set(verdicts)
		g.Expect(changed).To(ConsistOf(wanted))
		g.Expect(due).To(Equal(len(wanted) > 0))
	}
	_, known := f.HealthAction("faulty")
	g.Expect(known).To(BeFalse())
	expect(map[string]healthaction.Verdict{}, "faulty")
	held := healthaction.Verdict{Hold: healthaction.HoldDwell, Text: "not tainted: the fault must last 10m"}
	expect(map[string]healthaction.Verdict{"faulty": held}, "faulty")
	expect(map[string]healthaction.Verdict{"faulty": held})
	expect(map[string]healthaction.Verdict{"faulty": {}})
	verdict, known := f.HealthAction("faulty")
	g.Expect(verdict).To(Equal(held), "while the action is about to be taken")
	g.Expect(known).To(BeTrue())
	done := healthaction.Verdict{Done: v1.HealthActionTaint, Text: "tainted"}
	expect(map[string]healthaction.Verdict{"faulty": done, "healthy": held}, "faulty", "healthy")
	g.Expect(f.View().HealthActions).To(HaveLen(2))
	expect(map[string]healthaction.Verdict{"faulty": done}, "healthy")
}
