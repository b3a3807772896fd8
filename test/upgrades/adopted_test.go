package upgrades

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// initialCordonKey is the annotation in which NVIDIA's operator records that a node was cordoned before its upgrade.
const initialCordonKey = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"

// left is a node as NVIDIA's operator leaves it when it stops in the middle of an upgrade.
type left struct {
	state string
	// cordoned, and if so, whether a user had done that.
	cordoned, before bool
	// replaced: the driver pod is already the new one.
	replaced bool
}

// TestAdoptedUpgrades: upgrades that another operator has begun are completed from each of its states. Nodes that it
// has cordoned become schedulable, and those that a user had cordoned stay so. A node in an unknown state is left
// alone.
func TestAdoptedUpgrades(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	all := []left{
		{state: "cordon-required"},
		{state: stateWait, cordoned: true},
		{state: stateEviction, cordoned: true},
		{state: stateDrain, cordoned: true, before: true},
		{state: stateRestart, cordoned: true},
		{state: stateRestart, cordoned: true, replaced: true},
		{state: stateValidation, cordoned: true, replaced: true},
		{state: "uncordon-required", cordoned: true, replaced: true},
		{state: stateFailed, cordoned: true},
		{state: stateRequired},
		{state: "an-unknown-state"},
	}
	e := newEnv(t, envOptions{nodes: len(all), policy: budget(0, "100%")})
	unknown := nodeName(len(all) - 1)
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.Paused = pointer(true) })
	e.install(after)
	e.Eventually(e.pending).WithTimeout(readyTime).Should(BeEquivalentTo(len(all)))
	e.atRest()
	e.managers.stop(e)
	for i, was := range all {
		e.leave(nodeName(i), was)
	}
	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.Paused = nil })
	e.start()
	for i, was := range all[:len(all)-1] {
		t.Run(fmt.Sprintf("%s, cordoned by a user %t, driver replaced %t", was.state, was.before, was.replaced),
			func(t *testing.T) {
				e, node := e.in(t), nodeName(i)
				e.Eventually(func() bool { return e.watch.driver(node).runs(after) }).WithTimeout(upgradeTime).Should(BeTrue())
				e.awaitState(node, stateDone)
				// NVIDIA's operator keeps a failed node cordoned without a record of who has done that.
				e.Expect(e.watch.node(node).cordoned).To(Equal(was.before || was.state == stateFailed))
				e.Expect(e.watch.node(node).annotations).NotTo(HaveKey(initialCordonKey))
			})
	}
	e.awaitProgress(unknown, "held=true", "UpgradeUnknownState", "an-unknown-state")
	e.Expect(e.watch.driver(unknown).runs(before)).To(BeTrue())
	e.writesNothing()
}

// leave writes what another operator has written to a node. It is not marked as a user's change.
func (e *env) leave(name string, was left) {
	e.t.Helper()
	annotations := fmt.Sprintf(`{%q:null}`, recordKey)
	if was.before {
		annotations = fmt.Sprintf(`{%q:null,%q:"true"}`, recordKey, initialCordonKey)
	}
	e.mergeNode(name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":%s},"spec":{"unschedulable":%t}}`,
		stateLabel, was.state, annotations, was.cordoned))
	if !was.replaced {
		return
	}
	e.removeDriver(name)
	e.Eventually(func() bool { return e.watch.driver(name).runs(after) }).WithTimeout(readyTime).Should(BeTrue())
}
