package upgrades

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestKilledDrivers: driver pods that are deleted while their GPUs are in use come back with an equal driver, and
// nothing else happens.
func TestKilledDrivers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 5
	kills := 10
	if full() {
		kills = 100
	}
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(1, "1")})
	for _, name := range nodeNames(nodes) {
		e.deploy(workload{name: "user-" + name, node: name, gpus: "8"}, 1)
	}
	users := e.users(nodes)
	mark, since, random := e.mark(), e.watch.now(), chance.Of(t, "kills")
	for range kills / nodes {
		killed := map[string]string{}
		for _, i := range random.Perm(nodes) {
			killed[nodeName(i)] = e.watch.driver(nodeName(i)).uid
			e.removeDriver(nodeName(i))
		}
		for name, uid := range killed {
			e.Eventually(func() bool {
				driver := e.watch.driver(name)
				return driver.uid != uid && driver.ready
			}).Should(BeTrue(), "%s must get a new driver pod", name)
		}
	}
	e.awaitReady(nodes)
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.watch.changes(since)).To(BeEmpty(), "cordons and uncordons")
	e.Expect(e.deletions(mark, driverApp)).To(BeEmpty())
	e.Expect(e.users(nodes)).To(Equal(users), "the pods with GPUs keep running")
	e.writesNothing()
}

// TestManual: without automatic upgrades an outdated driver is reported, and replaced on request: by an annotation, or
// by deleting its pod.
func TestManual(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 3
	e := newEnv(t, envOptions{nodes: nodes, policy: func(u *v1.DriverUpgradePolicySpec) {
		u.AutoUpgrade = pointer(false)
		budget(1, "1")(u)
	}})
	for _, name := range nodeNames(nodes) {
		e.deploy(workload{name: "user-" + name, node: name, gpus: "1"}, 1)
	}
	mark, since := e.mark(), e.watch.now()
	e.install(after)
	for _, name := range nodeNames(nodes) {
		e.awaitProgress(name, "held=true", "UpgradeManual")
	}
	e.atRest()
	e.undisturbed(since)
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.policy().Status.Upgrade.Pending).To(BeNumerically("==", nodes))

	e.annotate(nodeName(0), requestKey, "true")
	e.manuallyUpgraded(after, nodeName(0))
	e.Expect(e.watch.node(nodeName(0)).annotations).NotTo(HaveKey(requestKey), "the request is served")
	e.Expect(e.evictions(mark)).To(HaveLen(1))
	e.awaitRunning("user-"+nodeName(0), 1)

	e.removeDriver(nodeName(1))
	e.manuallyUpgraded(after, nodeName(1))
	e.Expect(e.evictions(mark)).To(HaveLen(2))
	e.awaitRunning("user-"+nodeName(1), 1)
	e.Expect(e.watch.cordons(since)).To(Equal(map[string]int{nodeName(0): 1, nodeName(1): 1}))
	e.Expect(e.watch.driver(nodeName(2)).runs(before)).To(BeTrue(), "its upgrade was not requested")
	e.awaitRunning("user-"+nodeName(2), 1)
	e.writesNothing()
}

// manuallyUpgraded waits until the node has the new driver and is usable; its label is optional.
func (e *env) manuallyUpgraded(version, name string) {
	e.t.Helper()
	e.Eventually(func() string {
		node, driver := e.watch.node(name), e.watch.driver(name)
		if driver.runs(version) && !node.cordoned && node.gpuReady && (node.state == "" || node.state == stateDone) {
			return ""
		}
		return fmt.Sprintf("driver %s ready %t, state %q, cordoned %t, GPUReady %t: %s", driver.image, driver.ready,
			node.state, node.cordoned, node.gpuReady, e.progress(name))
	}).WithTimeout(upgradeTime).Should(BeEmpty(), name)
}
