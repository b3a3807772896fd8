package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestRecordsAreDecoded(t *testing.T) {
	g := NewWithT(t)
	record := &Record{UID: "u", Round: 3, State: StateRequired, Since: epoch, Target: "t", DriverPod: "p", Requested: true}
	const annotation = `{"uid":"u","round":3,"state":"upgrade-required","since":"2030-01-01T00:00:00Z","target":"t",` +
		`"driverPod":"p","requested":true}`
	g.Expect(record.Encode()).To(Equal(annotation))
	g.Expect(DecodeRecord(annotation)).To(Equal(record))
	for text, problem := range map[string]string{
		`{`:                            "decoding the record: unexpected end of JSON input",
		`{"uid":"u"}`:                  `unknown state ""`,
		`{"state":"cordon-required"}`:  `unknown state "cordon-required"`,
		`{"state":"upgrade-tomorrow"}`: `unknown state "upgrade-tomorrow"`,
	} {
		_, err := DecodeRecord(text)
		g.Expect(err).To(MatchError(problem))
	}
}

func TestSlotsAreDecoded(t *testing.T) {
	g := NewWithT(t)
	slots := Slots{"gpu-1": {UID: "u", Round: 2}}
	data := slots.Encode()
	g.Expect(data).To(Equal(map[string]string{"gpu-1": `{"uid":"u","round":2}`}))
	data["gpu-2"], data["gpu-3"] = "x", "{}"
	got, unreadable := DecodeSlots(data)
	g.Expect(got).To(Equal(slots))
	g.Expect(unreadable).To(Equal([]string{"gpu-2", "gpu-3"}))
}

func TestASlotCountsUntilItsRoundHasEnded(t *testing.T) {
	slots := Slots{"gpu-1": {UID: "u", Round: 2}}
	for _, c := range []struct {
		name  string
		node  Node
		valid bool
	}{
		{"not granted", Node{Name: "gpu-2", UID: "u"}, false},
		{"of a deleted Node", Node{Name: "gpu-1", UID: "other"}, false},
		{"before the first record", Node{Name: "gpu-1", UID: "u"}, true},
		{"of the next round", Node{Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 1, State: StateDone}}, true},
		{"pending", Node{Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 2, State: StateRequired}}, true},
		{"in progress", Node{Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 2, State: StateDrain}}, true},
		{"done", Node{Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 2, State: StateDone}}, false},
		{"failed", Node{Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 2, State: StateFailed}}, false},
		{"of an earlier round", Node{
			Name: "gpu-1", UID: "u", Record: &Record{UID: "u", Round: 3, State: StateRequired},
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) { NewWithT(t).Expect(slots.Valid(&c.node)).To(Equal(c.valid)) })
	}
}

func TestNodesAreUpgradedInOrder(t *testing.T) {
	ready := func(name string, change func(*Node)) Node {
		n := Node{Name: name, UID: "u", Installs: true, KubeletReady: true, GPUReady: true, Target: "v2",
			Driver: &Pod{Digest: "v1", Ready: true}}
		change(&n)
		return n
	}
	nodes := []Node{
		ready("a-skipped", func(n *Node) { n.Skip = true }),
		ready("b-in-sync", func(n *Node) { n.Target = "v1" }),
		ready("c-running", func(n *Node) { n.Record = &Record{UID: "u", State: StateDrain} }),
		ready("d", func(*Node) {}),
		ready("e-manual", func(n *Node) { n.Group = "manual" }),
		ready("f-requested", func(n *Node) { n.Group, n.Requested = "manual", true }),
		ready("g-broken", func(n *Node) { n.GPUReady, n.Driver.Ready = false, false }),
		ready("h", func(n *Node) { n.Target, n.MoveTo = "v1", "noble" }),
		ready("i-excluded", func(n *Node) { n.Installs = false }),
	}
	NewWithT(t).Expect(Order(nodes, map[string]Policy{"": {Auto: true}, "manual": {}})).
		To(Equal([]string{"g-broken", "f-requested", "d", "h"}))
}

// Two of six nodes have taken ten minutes each. The others take two rounds of two nodes.
func TestTheReportEstimatesWhatRemains(t *testing.T) {
	g := NewWithT(t)
	policy := Policy{Auto: true, MaxParallel: 2, MaxUnavailable: intstr.FromString("50%")}
	c := Cluster{Now: epoch, Policies: map[string]Policy{"": policy}}
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		n := Node{Name: name, UID: "u", Installs: true, KubeletReady: true, GPUReady: true, Target: "v2",
			Driver: &Pod{Digest: "v1", Ready: true}, State: StateRequired,
			Record: &Record{UID: "u", Round: 1, State: StateRequired}}
		if i < 2 {
			n.Driver.Digest, n.State = "v2", StateDone
			n.Record = &Record{UID: "u", Round: 1, State: StateDone, Target: "v2", Started: epoch}
			n.Record.Since = epoch.Add(10 * time.Minute)
		}
		c.Nodes = append(c.Nodes, n)
	}
	report := c.Plan().Report
	g.Expect(report.Remaining).To(Equal(20 * time.Minute))
	counts := []int{report.Pending, report.InProgress, report.Done, report.Failed, report.Held}
	g.Expect(counts).To(Equal([]int{4, 0, 2, 0, 0}))
	g.Expect(report.Target).To(Equal("v2"))
}

// The health agent knows the states in which nobody touches the driver by their keys alone.
func TestStatesOfADriverInUse(t *testing.T) {
	g := NewWithT(t)
	g.Expect(StateRequired).To(Equal(State(labels.UpgradeStateRequired)))
	g.Expect(StateDone).To(Equal(State(labels.UpgradeStateDone)))
}

func TestDecodeDrain(t *testing.T) {
	drain := &Drain{UID: "one", State: DrainUsers, Layout: "all-1g.10gb", Granted: epoch, Since: epoch, Cordoned: true}
	again, err := DecodeDrain(drain.Encode())
	if err != nil || *again != *drain {
		t.Errorf("got %+v and %v, want %+v", again, err, drain)
	}
	later, err := DecodeDrain(`{"uid":"one","state":"later","cordoned":true}`)
	if err != nil || !later.Cordons("one") {
		t.Errorf("got %+v and %v, want a cordon", later, err)
	}
	for _, text := range []string{"", "cordoned", "[]"} {
		if drain, err := DecodeDrain(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, drain)
		}
	}
}
