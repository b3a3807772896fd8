package upgrades

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// slack is how much longer an upgrade may take than its rounds one after another. Only complete campaigns, which have
// the machine for themselves, judge that.
const slack = 1.3

// maxTimed is the largest round whose time is judged. In larger ones the API server needs all of a small machine: 50
// nodes at a time take 1.6 to 2 times as long as one alone, with the operator at a fifth of a core.
const maxTimed = 20

// maxNodeWrites is how often the operator may write each node in its upgrade.
const maxNodeWrites = 10

// TestBudgets upgrades fleets with several budgets: never are more nodes unavailable than allowed, each node is
// written and restarted as often as necessary, and the budget is used.
func TestBudgets(t *testing.T) {
	if !full() {
		t.Parallel()
	}
	for _, nodes := range fleets(t) {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			e := newEnv(t, envOptions{nodes: nodes, scale: 1, policy: func(u *v1.DriverUpgradePolicySpec) {
				u.AutoUpgrade = pointer(false)
			}})
			version := versions()
			alone := e.alone(version())
			for _, b := range []struct {
				unavailable string
				parallel    int32
				limit       int
			}{
				{"1", 1, 1}, {"3", 3, 3}, {"25%", 0, (nodes + 3) / 4}, {"100%", 0, nodes},
			} {
				if b.limit == 1 && nodes > 6 || cluster.Sampled() && b.limit < nodes {
					continue
				}
				e.upgradesWithin(version(), alone, nodes, b.limit, budget(b.parallel, b.unavailable))
			}
			e.writesNothing()
		})
	}
}

// fleets are the numbers of nodes.
func fleets(t *testing.T) []int {
	t.Helper()
	if text := os.Getenv("UPGRADE_NODES"); text != "" {
		nodes, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("UPGRADE_NODES: %v", err)
		}
		return []int{nodes}
	}
	if full() {
		return []int{6, 50, 200}
	}
	return []int{6}
}

// versions returns a function that returns a new version of the driver each time.
func versions() func() string {
	n := 0
	return func() string {
		n++
		return fmt.Sprintf("590.%d.01", n)
	}
}

// alone upgrades one node on request, and returns the time from its cordon to its uncordon. The other nodes keep their
// driver.
func (e *env) alone(version string) time.Duration {
	e.t.Helper()
	since := e.watch.now()
	e.install(version)
	e.awaitProgress(nodeName(0), "UpgradeManual")
	e.annotate(nodeName(0), requestKey, "true")
	e.manuallyUpgraded(version, nodeName(0))
	e.Expect(e.watch.cordons(since)).To(Equal(map[string]int{nodeName(0): 1}), "only the requested node")
	alone := e.watch.span(since)
	e.t.Logf("one node alone: %s from cordon to uncordon", alone.Round(time.Millisecond))
	return alone
}

const requestKey = "nvidia.com/gpu-driver-upgrade-requested"

// upgradesWithin upgrades all nodes within a budget.
func (e *env) upgradesWithin(
	version string, alone time.Duration, nodes, limit int, set func(*v1.DriverUpgradePolicySpec),
) {
	e.t.Helper()
	e.atRest()
	since, mark := e.watch.now(), e.mark()
	e.edit(func(s *v1.ClusterPolicySpec) {
		s.Driver.Version, s.Driver.UpgradePolicy.AutoUpgrade = version, pointer(true)
		set(s.Driver.UpgradePolicy)
	})
	rounds := (nodes + limit - 1) / limit
	allowed := time.Duration(slack * float64(rounds) * float64(alone))
	e.awaitUpgradedIn(upgradeTime+allowed, version, nodeNames(nodes)...)
	took := e.watch.span(since)
	most := e.watch.most(since)
	e.t.Logf("%d nodes, at most %d unavailable: %d were; %s of at most %s", nodes, limit, len(most),
		took.Round(time.Millisecond), allowed.Round(time.Millisecond))
	e.Expect(most).To(HaveLen(limit), "the budget is kept, and used")
	if full() && limit <= maxTimed {
		e.Expect(took).To(BeNumerically("<=", allowed), "%d rounds", rounds)
	}
	e.Expect(e.watch.replaced(since)).To(And(HaveLen(nodes), HaveEach(1)), "new driver pods of each node")
	e.Expect(e.watch.cordons(since)).To(And(HaveLen(nodes), HaveEach(1)), "cordons of each node")
	e.Expect(e.nodeWrites(mark)).To(HaveEach(BeNumerically("<=", maxNodeWrites)), "writes of each node")
	e.Expect(e.evictions(mark)).To(BeEmpty(), "no pod uses a GPU")
}
