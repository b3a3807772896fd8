package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestEdits edits the policy in the middle of upgrades, each step on the same nodes.
func TestEdits(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 4
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(1, "1")})
	t.Run("what does not change the driver disturbs nothing", func(t *testing.T) { e.in(t).cosmetic(nodes) })
	t.Run("another target, and back again", func(t *testing.T) { e.in(t).targets(nodes) })
	t.Run("the budget raised, and the upgrade paused", func(t *testing.T) { e.in(t).budgets(nodes) })
	t.Run("the budget lowered", func(t *testing.T) { e.in(t).lowered(nodes) })
	e.writesNothing()
}

// cosmetic edits fields that are not what the driver's containers install.
func (e *env) cosmetic(nodes int) {
	since, mark := e.watch.now(), e.mark()
	e.edit(func(s *v1.ClusterPolicySpec) {
		s.DaemonSets.PriorityClassName = "system-cluster-critical"
		s.DaemonSets.Labels = v1.Labels{"team": "hpc"}
		s.DaemonSets.Tolerations = append(s.DaemonSets.Tolerations, corev1.Toleration{
			Key: "example.com/key", Operator: corev1.TolerationOpExists,
		})
	})
	e.awaitReady(nodes)
	e.atRest()
	e.undisturbed(since)
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.deletions(mark, driverApp)).To(BeEmpty())
}

// undisturbed checks that no node was cordoned, and no driver pod replaced.
func (e *env) undisturbed(since int64) {
	e.t.Helper()
	e.Expect(e.watch.changes(since)).To(BeEmpty(), "cordons and uncordons")
	e.Expect(e.watch.replaced(since)).To(BeEmpty(), "new driver pods")
}

// targets changes the version after one node has been upgraded, and goes back.
func (e *env) targets(nodes int) {
	since := e.watch.now()
	e.install(after)
	e.Eventually(func() []string { return e.upgraded(after, nodes) }).WithTimeout(upgradeTime).Should(HaveLen(1))
	e.install(later)
	e.Eventually(func() []string { return e.upgraded(later, nodes) }).WithTimeout(upgradeTime).Should(HaveLen(1))
	e.install(before)
	e.awaitUpgraded(before, nodeNames(nodes)...)
	e.Expect(e.watch.most(since)).To(HaveLen(1), "the budget")
	total := 0
	for _, count := range e.watch.replaced(since) {
		total += count
	}
	// A node at a time had another version, and one more was being upgraded at each edit.
	e.Expect(total).To(And(BeNumerically(">=", 4), BeNumerically("<=", 7)), "new driver pods: %v", e.watch.replaced(since))
}

// upgraded returns the nodes whose upgrade to the version is done.
func (e *env) upgraded(version string, nodes int) []string {
	var names []string
	for _, name := range nodeNames(nodes) {
		node := e.watch.node(name)
		if e.watch.driver(name).runs(version) && node.state == stateDone && !node.cordoned {
			names = append(names, name)
		}
	}
	return names
}

// budgets raises the budget in the middle, and pauses the upgrade after it.
func (e *env) budgets(nodes int) {
	since := e.watch.now()
	e.install(after)
	e.Eventually(func() []string { return e.watch.most(since) }).WithTimeout(upgradeTime).Should(HaveLen(1))
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.Paused = pointer(true) })
	e.Eventually(func() int32 { return e.policy().Status.Upgrade.InProgress }).WithTimeout(upgradeTime).Should(BeZero(),
		"running upgrades finish")
	e.atRest()
	done := e.upgraded(after, nodes)
	e.Expect(len(done)).To(And(BeNumerically(">=", 1), BeNumerically("<=", 2)), "no upgrade starts while paused")
	e.Expect(e.policy().Status.Upgrade.Held).To(BeNumerically("==", nodes-len(done)))
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) {
		budget(0, "2")(u)
		u.Paused = nil
	})
	e.awaitUpgraded(after, nodeNames(nodes)...)
	e.Expect(e.watch.most(since)).To(HaveLen(2), "the raised budget is used")
	e.Expect(e.watch.replaced(since)).To(And(HaveLen(nodes), HaveEach(1)), "new driver pods of each node")
}

// lowered lowers the budget once all of it is used.
func (e *env) lowered(nodes int) {
	e.atRest()
	since := e.watch.now()
	e.install(later)
	e.Eventually(func() []string { return e.watch.most(since) }).WithTimeout(upgradeTime).Should(HaveLen(2))
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.MaxUnavailable = pointer(intstr.FromInt32(1)) })
	e.Eventually(func() []string { return e.upgraded(later, nodes) }).WithTimeout(upgradeTime).Should(HaveLen(2))
	lowered := e.watch.now()
	e.awaitUpgraded(later, nodeNames(nodes)...)
	e.Expect(e.watch.most(lowered)).To(HaveLen(1), "the lowered budget")
	e.Expect(e.watch.replaced(since)).To(And(HaveLen(nodes), HaveEach(1)), "new driver pods of each node")
}
