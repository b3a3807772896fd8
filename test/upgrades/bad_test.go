package upgrades

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// quickDeadlines are those of the driver and the validation.
func quickDeadlines(u *v1.DriverUpgradePolicySpec) {
	seconds := v1.TimeoutSeconds(5)
	u.Timeouts = &v1.UpgradeTimeoutsSpec{
		ImagePullSeconds: &seconds, DriverSeconds: &seconds, ValidationSeconds: &seconds,
	}
}

// TestBadDriver: a driver that does not work harms no more nodes than the budget allows, and a correction repairs them.
func TestBadDriver(t *testing.T) {
	t.Parallel()
	const nodes = 5
	e := newEnv(t, envOptions{nodes: nodes, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(2, "2")(u)
		quickDeadlines(u)
	}})
	t.Run("a driver that crashes", func(t *testing.T) { e.in(t).crashing(nodes) })
	t.Run("a validation that fails and is repaired, and an image that one node cannot pull", func(t *testing.T) {
		cluster.SkipInSample(t)
		e.in(t).invalid(nodes)
		e.in(t).unpullable(nodes)
	})
	e.writesNothing()
}

func (e *env) crashing(nodes int) {
	since := e.watch.now()
	image := strings.Replace(e.watch.driver(nodeName(0)).image, before, after, 1)
	e.sim.BreakImage(image, simulator.CrashLoop)
	e.install(after)
	e.Eventually(func() []string { return e.failed(nodes) }).WithTimeout(upgradeTime).Should(HaveLen(2))
	e.awaitProgress(e.failed(nodes)[0], stateFailed, "nvidia-driver-ctr")
	e.atRest()
	e.Expect(e.failed(nodes)).To(HaveLen(2), "no further node is harmed")
	e.Expect(e.watch.most(since)).To(HaveLen(2), "the budget")
	e.install(later)
	e.awaitUpgraded(later, nodeNames(nodes)...)
	e.Expect(e.watch.most(since)).To(HaveLen(2), "the budget")
	e.sim.BreakImage(image, "")
}

// failed returns the nodes whose upgrade has failed.
func (e *env) failed(nodes int) []string {
	var names []string
	for _, name := range nodeNames(nodes) {
		if e.watch.node(name).state == stateFailed {
			names = append(names, name)
		}
	}
	return names
}

// invalid makes the validators of new drivers not ready until upgrades have failed.
func (e *env) invalid(nodes int) {
	e.atRest()
	since := e.watch.now()
	for _, name := range nodeNames(nodes) {
		// It affects only validators of new drivers.
		e.sim.Break("operator-validator", name, simulator.ImagePull)
	}
	e.install(before)
	e.Eventually(func() []string { return e.failed(nodes) }).WithTimeout(upgradeTime).ShouldNot(BeEmpty())
	e.atRest()
	e.Expect(e.watch.most(since)).To(HaveLen(2), "the budget")
	for _, name := range e.failed(nodes) {
		e.Expect(e.watch.node(name).cordoned).To(BeTrue(), "%s has a driver that is not validated", name)
	}
	for _, name := range nodeNames(nodes) {
		e.sim.Heal("operator-validator", name)
	}
	e.awaitUpgraded(before, nodeNames(nodes)...)
}

func (e *env) unpullable(nodes int) {
	e.atRest()
	bad := nodeName(0)
	e.deploy(workload{name: "user", node: bad, gpus: "1"}, 1)
	since, mark := e.watch.now(), e.mark()
	e.sim.Break("driver", bad, simulator.ImagePull)
	e.install(after)
	e.awaitUpgraded(after, nodeNames(nodes)[1:]...)
	e.awaitProgress(bad, "held=true", "UpgradePullFailed")
	e.Expect(e.watch.cordons(since)).NotTo(HaveKey(bad), "a node that cannot pull the image is not cordoned")
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.watch.driver(bad).runs(before)).To(BeTrue())
	e.sim.Heal("driver", bad)
	e.annotate(bad, requestKey, "true")
	e.awaitUpgraded(after, bad)
	e.Expect(e.evictions(mark)).To(HaveLen(1))
}
