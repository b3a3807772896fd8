package healthaction

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestVerdicts(t *testing.T) {
	fault := func(class gpuhealth.Class, reason string, age time.Duration) []gpuhealth.Fault {
		return []gpuhealth.Fault{{PCI: "0000:1b:00.0", Class: class, Reason: reason, Xid: 79, Since: epoch.Add(-age)}}
	}
	unreported := func(_ *Cluster, a *Node) {
		a.Reported, a.HasRecord, a.Tainted = false, true, true
		a.Record = &Record{UID: a.UID, State: Done, Action: v1.HealthActionTaint, Fault: "reset-1"}
	}
	for _, c := range []struct {
		name string
		// change sets up the cluster of three nodes, of which a is the one that counts.
		change func(*Cluster, *Node)
		hold   Hold
		text   string
		// step is the step of node a; empty for none.
		step string
	}{
		{"a lost GPU is tainted at once", func(_ *Cluster, a *Node) {
			a.Report.Faults = fault(gpuhealth.Reset, "GPULost", 0)
		}, "", "", "a: record claimed taint reset-a2bd5fb6 taint - cordon -false"},
		{"a lost GPU is not cordoned at once", func(_ *Cluster, a *Node) {
			a.Report.Faults = fault(gpuhealth.Reboot, "GPULost", 0)
		}, HoldDwell, "not cordoned: the fault must last 10m; fault reboot-12a354b2", ""},
		{"other faults wait", func(_ *Cluster, a *Node) {
			a.Report.Faults = fault(gpuhealth.Reset, "NVLinkError", DefaultDwell-time.Second)
		}, HoldDwell, "not tainted: the fault must last 10m; fault reset-a2bd5fb6", ""},
		{"a dwell of its own", func(c *Cluster, a *Node) {
			c.Policy.Dwell = new(90 * time.Minute)
			a.Report.Faults = fault(gpuhealth.Reset, "GPULost", time.Hour)
		}, HoldDwell, "not tainted: the fault must last 1h30m; fault reset-a2bd5fb6", ""},
		{"a class without an action", func(_ *Cluster, a *Node) {
			a.Report.Faults = fault(gpuhealth.Hardware, "GPUHardwareError", time.Hour)
		}, "", "", ""},
		{"a percentage is rounded up", func(c *Cluster, a *Node) {
			c.Policy.MaxNodes = intstr.FromString("1%")
			a.Report.Faults = fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, "", "", "a: record claimed taint reset-a2bd5fb6 taint - cordon -false"},
		{"a percentage of 0 allows none", func(c *Cluster, a *Node) {
			c.Policy.MaxNodes = intstr.FromString("0%")
			a.Report.Faults = fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldMaxNodes, "not tainted: maxNodes allows none; fault reset-a2bd5fb6", ""},
		{"other nodes of another product do not count", func(_ *Cluster, a *Node) {
			a.Group, a.Report.Faults = "/H200", fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldLastHealthyNode,
			"not tainted: no other node of its node pool and product is healthy; fault reset-a2bd5fb6", ""},
		{"the driver is not ready", func(_ *Cluster, a *Node) {
			a.DriverReady, a.Report.Faults = false, fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldDriverNotReady,
			"not tainted: its driver is not ready, so that a fault may be the driver's; fault reset-a2bd5fb6", ""},
		{"Karpenter deletes the node", func(_ *Cluster, a *Node) {
			a.OtherActor, a.Report.Faults = "Karpenter", fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldOtherActor, "not tainted: Karpenter works on the node; fault reset-a2bd5fb6", ""},
		{"the driver is upgraded", func(_ *Cluster, a *Node) {
			a.Upgrading, a.Report.Faults = true, fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldOtherActor, "not tainted: its driver is being upgraded; fault reset-a2bd5fb6", ""},
		{"the node is drained for a MIG layout", func(_ *Cluster, a *Node) {
			a.Upgrading, a.Relayouting, a.Unschedulable, a.UpgradeCordoned = true, true, true, true
			a.Report.Faults = fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldOtherActor, "not tainted: its MIG layout is being changed; fault reset-a2bd5fb6", ""},
		{"a cordon is not undone while the node is drained for a MIG layout", func(_ *Cluster, a *Node) {
			a.Upgrading, a.Relayouting, a.Unschedulable, a.HasRecord = true, true, true, true
			a.Record = &Record{UID: a.UID, State: Done, Action: v1.HealthActionCordon, Fault: "reset-1"}
		}, "", "still cordoned: its MIG layout is being changed", ""},
		{"a user forbids it", func(_ *Cluster, a *Node) {
			a.Consent, a.Report.Faults = labels.HealthForbid, fault(gpuhealth.Reset, "NVLinkError", time.Hour)
		}, HoldForbidden,
			"not tainted: the annotation nvidia.com/gpu-operator.health-action forbids it; fault reset-a2bd5fb6", ""},
		{"a lost GPU decides before an older fault of a worse class, which must last", func(c *Cluster, a *Node) {
			c.Policy.Actions[gpuhealth.Hardware] = v1.HealthActionTaint
			a.Report.Faults = append(fault(gpuhealth.Hardware, "GPUHardwareError", time.Minute), gpuhealth.Fault{
				PCI: otherGPU, Class: gpuhealth.Reset, Reason: gpuhealth.ReasonGPULost, Since: epoch,
			})
		}, "", "", "a: record claimed taint reset-0253b01d taint - cordon -false"},
		{"an action that was undone for one fault is taken for another one", func(c *Cluster, a *Node) {
			c.Policy.Actions[gpuhealth.Hardware] = v1.HealthActionTaint
			a.Report.Faults = append(fault(gpuhealth.Hardware, "GPUHardwareError", time.Hour), gpuhealth.Fault{
				PCI: otherGPU, Class: gpuhealth.Reset, Reason: gpuhealth.ReasonGPULost, Since: epoch,
			})
			a.HasRecord = true
			a.Record = &Record{
				UID: a.UID, State: Undone, Action: v1.HealthActionTaint, Fault: faultID("0", &a.Report.Faults[0]),
			}
		}, "", "", "a: record claimed taint reset-0253b01d hardware-e94ce91f taint - cordon -false"},
		{"what was undone is not done again when another fault ends", func(_ *Cluster, a *Node) {
			a.Report.Faults = fault(gpuhealth.Reset, "NVLinkError", time.Hour)
			a.HasRecord, a.Tainted = true, true
			a.Record = &Record{
				UID: a.UID, State: Done, Action: v1.HealthActionTaint, Fault: "reset-1", Undone: []string{"reset-a2bd5fb6"},
			}
		}, HoldUndone, "not tainted: someone has undone it; fault reset-a2bd5fb6",
			"a: record undone taint reset-a2bd5fb6 taint false cordon -false"},
		{"what was done stays until the agent reports", unreported, "", "tainted", ""},
		{"what someone has undone before the agent reports", func(c *Cluster, a *Node) {
			unreported(c, a)
			a.Tainted = false
		}, HoldUndone, "not tainted: someone has undone it; fault reset-1",
			"a: record undone taint reset-1 taint - cordon -false"},
		{"a claim is followed by the taint", func(_ *Cluster, a *Node) {
			a.Report.Faults, a.HasRecord = fault(gpuhealth.Reset, "NVLinkError", time.Hour), true
			a.Record = &Record{UID: a.UID, State: Claimed, Action: v1.HealthActionTaint, Fault: "reset-a2bd5fb6"}
		}, "", "tainted", "a: record done taint reset-a2bd5fb6 taint true cordon -false"},
		{"what was undone for a fault that has ended", func(c *Cluster, a *Node) {
			unreported(c, a)
			a.Reported, a.Report.Faults = true, fault(gpuhealth.Reset, "NVLinkError", time.Hour)
			a.Record.Fault, a.Record.Undone = "reset-a2bd5fb6", []string{"reset-1"}
		}, "", "tainted", "a: record done taint reset-a2bd5fb6 taint - cordon -false"},
		{"what was approved has ended", func(_ *Cluster, a *Node) { a.Consent = labels.HealthApprove + "reset-1" }, "", "",
			"a: record - taint - cordon -true"},
		{"what a user forbids is undone before the agent reports", func(c *Cluster, a *Node) {
			unreported(c, a)
			a.Consent = labels.HealthForbid
		}, "", "", "a: record - taint false cordon -false"},
		{"what is no action any more is undone before the agent reports", func(c *Cluster, a *Node) {
			unreported(c, a)
			c.Policy.Actions[gpuhealth.Reset], c.Policy.Actions[gpuhealth.Hardware] = v1.HealthActionNone, v1.HealthActionTaint
		}, "", "", "a: record - taint false cordon -false"},
		{"a record of a deleted Node", func(_ *Cluster, a *Node) {
			a.HasRecord, a.Record = true, &Record{UID: "gone", State: Done, Action: v1.HealthActionCordon, Fault: "reset-1"}
			a.Unschedulable = true
		}, "", "", "a: record - taint - cordon -false"},
		{"a taint without a record", func(_ *Cluster, a *Node) { a.Tainted = true }, "", "",
			"a: record - taint false cordon -false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newWorld(3, 1).cluster()
			c.change(cluster, &cluster.Nodes[0])
			plan := cluster.Plan()
			verdict := plan.Nodes["a"]
			g.Expect(verdict.Hold).To(Equal(c.hold))
			g.Expect(verdict.Text).To(Equal(c.text))
			done, _, _ := strings.Cut(strings.TrimPrefix(c.text, "still "), ":")
			g.Expect(verdict.Done).To(Equal(map[string]v1.HealthAction{"tainted": "taint", "cordoned": "cordon"}[done]))
			step := ""
			for i := range plan.Steps {
				if plan.Steps[i].Node == "a" {
					step = plan.Steps[i].describe()
					g.Expect(plan.Steps[i].Why).NotTo(BeEmpty())
				}
			}
			g.Expect(step).To(Equal(c.step))
			g.Expect(plan.Until.IsZero()).To(Equal(c.hold != HoldDwell))
		})
	}
}

// Of claims beyond the limit only the last ones are given up, and the first one waits for that.
func TestExcessClaimsAreGivenUp(t *testing.T) {
	g, cluster := NewWithT(t), newWorld(15, 1).cluster()
	for i := range 3 {
		n := &cluster.Nodes[i]
		n.Report.Faults = []gpuhealth.Fault{
			{PCI: "0000:1b:00.0", Class: gpuhealth.Reset, Reason: "NVLinkError", Since: epoch.Add(-time.Hour)},
		}
		n.HasRecord = true
		n.Record = &Record{UID: n.UID, State: Claimed, Action: v1.HealthActionTaint, Fault: "reset-a2bd5fb6"}
	}
	plan := cluster.Plan()
	var steps []string
	for i := range plan.Steps {
		steps = append(steps, plan.Steps[i].describe())
	}
	g.Expect(steps).To(Equal([]string{"b: record - taint - cordon -false", "c: record - taint - cordon -false"}))
	g.Expect(plan.Nodes).To(HaveKeyWithValue("a", Verdict{}))
	g.Expect(plan.Nodes["b"].Hold).To(Equal(HoldMaxNodes))
	g.Expect(plan.Nodes["c"].Hold).To(Equal(HoldMaxNodes))
}

// A step that was not carried out leaves what the node shows.
func TestMissed(t *testing.T) {
	g, planned := NewWithT(t), Verdict{Hold: HoldDwell, Text: "waits"}
	node := &Node{UID: "a", Unschedulable: true}
	node.Record = &Record{UID: "a", State: Done, Action: v1.HealthActionCordon, Fault: "reset-1"}
	recorded, taints := &Step{}, &Step{Taint: new(true)}
	g.Expect(planned.Missed(node, recorded, false, "")).To(Equal(planned))
	g.Expect(planned.Missed(node, taints, false, "")).To(Equal(Verdict{Done: v1.HealthActionCordon}))
	g.Expect(planned.Missed(node, &Step{Unschedulable: new(true)}, false, "")).
		To(Equal(Verdict{Done: v1.HealthActionCordon}))
	for message, text := range map[string]string{
		"":   "the API server has not answered a change of the node",
		"no": "the API server has rejected a change of the node: no",
	} {
		got := planned.Missed(node, recorded, true, message)
		g.Expect(got).To(Equal(Verdict{Done: v1.HealthActionCordon, Hold: HoldRejected, Text: text}))
	}
	node.Record.UID = "gone"
	g.Expect(planned.Missed(node, taints, false, "").Done).To(BeEmpty())
	node.Tainted = true
	g.Expect(planned.Missed(node, taints, false, "").Done).To(Equal(v1.HealthActionTaint))
}

// The ID of a fault is what users approve: it must be the same in each release.
func TestFaultID(t *testing.T) {
	g := NewWithT(t)
	fault := gpuhealth.Fault{PCI: "0000:1b:00.0", Class: gpuhealth.Reset, Reason: "NVLinkError", Since: epoch}
	g.Expect(faultID("0", &fault)).To(Equal("reset-a2bd5fb6"))
	for name, change := range map[string]func(*gpuhealth.Fault){
		"class":  func(f *gpuhealth.Fault) { f.Class = gpuhealth.Hardware },
		"device": func(f *gpuhealth.Fault) { f.PCI = "1" },
	} {
		other := fault
		change(&other)
		g.Expect(faultID("0", &other)).NotTo(Equal(faultID("0", &fault)), name)
	}
	g.Expect(faultID("1", &fault)).NotTo(Equal(faultID("0", &fault)), "boot")
	later := fault
	later.Since, later.Reason = epoch.Add(time.Hour), "GPUResetRequired"
	g.Expect(faultID("0", &later)).To(Equal(faultID("0", &fault)), "a fault that is read again")
}

// Three nodes that fail together are a storm in a fleet of 14, and not in one of 15.
func TestBreakerNeedsAPartOfTheNodes(t *testing.T) {
	for nodes, trips := range map[int]bool{14: true, 15: false} {
		w := newWorld(nodes, 1)
		for i := range 3 {
			w.machines[i].fails(w, gpuhealth.Reset)
			w.now = w.now.Add(stormWindow / 2)
		}
		NewWithT(t).Expect(w.cluster().isStorm()).To(Equal(trips), "%d nodes", nodes)
	}
}

func TestDecodeRecord(t *testing.T) {
	g := NewWithT(t)
	record := &Record{UID: "a", State: Undone, Action: v1.HealthActionCordon, Fault: "reset-1"}
	g.Expect(DecodeRecord(record.Encode())).To(Equal(record))
	for _, text := range []string{
		"", "{}", `{"uid":"a","state":"done","action":"none"}`, `{"uid":"a","state":"x","action":"taint"}`,
	} {
		_, err := DecodeRecord(text)
		g.Expect(err).To(HaveOccurred(), text)
	}
}
