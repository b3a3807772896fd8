package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestPoolMoves: a node that moves to a node pool with another driver, and back, is upgraded like any other. The nodes
// that stay where they are keep their drivers.
func TestPoolMoves(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 2
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(1, "1")})
	moved, other := nodeName(0), nodeName(1)
	for _, name := range nodeNames(nodes) {
		e.deploy(workload{name: "user-" + name, node: name, gpus: "1"}, 1)
	}
	e.edit(func(s *v1.ClusterPolicySpec) {
		s.NodePools = []v1.NodePoolSpec{{
			Name: "newer", NodeSelector: v1.NodePoolSelector{"team": "a"},
			Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: after}},
		}}
	})
	e.atRest()
	driver, user := e.watch.driver(other).uid, e.running("user-"+other)
	for _, move := range []struct{ team, version string }{{"a", after}, {"", before}} {
		mark, since := e.mark(), e.watch.now()
		e.label(moved, "team", move.team)
		e.awaitUpgraded(move.version, moved)
		e.awaitRunning("user-"+moved, 1)
		e.Expect(e.evictions(mark)).To(HaveLen(1))
		e.Expect(e.watch.cordons(since)).To(Equal(map[string]int{moved: 1}))
		e.Expect(e.watch.replaced(since)).To(Equal(map[string]int{moved: 1}))
		e.atRest()
	}
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.AutoUpgrade = pointer(false) })
	e.label(moved, "team", "a")
	e.Eventually(e.pending).WithTimeout(readyTime).Should(BeEquivalentTo(1))
	e.atRest()
	e.Expect(e.watch.driver(moved).runs(before)).To(BeTrue(), "it waits for a request")
	e.annotate(moved, requestKey, "true")
	e.Eventually(func() bool {
		return e.watch.driver(moved).runs(after) && !e.watch.node(moved).cordoned
	}).WithTimeout(upgradeTime).Should(BeTrue(), "the node has no state label without automatic upgrades")
	e.Expect(e.watch.driver(other).uid).To(Equal(driver))
	e.Expect(e.running("user-" + other)).To(Equal(user))
	e.writesNothing()
}
