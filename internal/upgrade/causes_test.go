package upgrade

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// However nodes are added, and whatever cause one has at last, the message names those that come first by name.
func TestCausesNameTheFirstNodes(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		last := map[string]string{}
		var rest []namedCause
		for i := range random.IntN(6) {
			rest = append(rest, namedCause{fmt.Sprintf("node-%d-rests", i), "is cordoned"})
			last[rest[i].node] = rest[i].cause
		}
		nodes := newCauses(rest)
		for range random.IntN(12) {
			node, cause := fmt.Sprintf("node-%d", random.IntN(8)), fmt.Sprintf("has cause %d", random.IntN(3))
			nodes.set(node, cause)
			last[node] = cause
		}
		var sorted []string
		for node, cause := range last {
			sorted = append(sorted, node+" "+cause)
		}
		slices.Sort(sorted)
		want := strings.Join(sorted, ", ")
		if len(sorted) > 3 {
			want = strings.Join(sorted[:3], ", ") + " and more"
		}
		g.Expect(nodes.list()).To(Equal(want))
		g.Expect(nodes.count()).To(Equal(len(last)))
	}
}

// waiting returns a cluster of nodes that wait for their upgrade with this policy, of which the first ones are not
// available, and as many after them are being upgraded.
func waiting(nodes, unavailable, upgrading int, policy Policy) *Cluster {
	now := time.Unix(1_000_000, 0)
	c := &Cluster{Now: now, Slots: Slots{}, Policies: map[string]Policy{"": policy}}
	for i := range nodes {
		uid := types.UID(fmt.Sprint("uid-", i))
		n := Node{
			Name: fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/256, i%256), UID: uid, Installs: true, Target: "new", BootID: "b",
			KubeletReady: true, GPUReady: i >= unavailable, State: StateRequired,
			Driver: &Pod{Name: "driver", UID: "driver", Digest: "old", Ready: true, Created: now},
			Record: &Record{UID: uid, Round: 1, State: StateRequired, Since: now, Target: "new", BootID: "b"},
		}
		if i >= unavailable && i < unavailable+upgrading {
			n.State, n.Record.State, n.Unschedulable, n.Record.Cordoned = StateValidation, StateValidation, true, true
			n.Driver.Digest = "new"
			c.Slots[n.Name] = Slot{UID: uid, Round: 1}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// A plan of a large group whose budget is full allocates a bounded amount for each node: each that waits has a message
// that names others.
func TestPlanWithAFullBudgetIsLinear(t *testing.T) {
	const nodes, maxPerNode = 2000, 8 << 10
	policy := Policy{Auto: true, DriverTimeout: time.Hour, ValidationTimeout: time.Hour}
	for name, test := range map[string]struct {
		unavailable, upgrading, parallel int
		maxUnavailable                   string
	}{
		"nodes that are not available":    {unavailable: 600, maxUnavailable: "25%"},
		"nodes that are being upgraded":   {upgrading: 600, maxUnavailable: "25%"},
		"as many upgrades as are allowed": {upgrading: 600, parallel: 600, maxUnavailable: "100%"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy.MaxParallel, policy.MaxUnavailable = test.parallel, intstr.FromString(test.maxUnavailable)
			c := waiting(nodes, test.unavailable, test.upgrading, policy)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan := c.Plan()
			runtime.ReadMemStats(&after)
			g.Expect(plan.Report).To(And(HaveField("Pending", nodes-test.upgrading), HaveField("InProgress", test.upgrading)))
			perNode := (after.TotalAlloc - before.TotalAlloc) / nodes
			t.Logf("%d bytes for each node", perNode)
			g.Expect(perNode).To(BeNumerically("<", maxPerNode))
		})
	}
}
