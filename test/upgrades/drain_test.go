package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestEscalation: a node whose pods with GPUs do not end in time is drained, and fails if that does not end in time
// either. It then gets its schedulability back, with its old driver, and is upgraded once nothing blocks it.
func TestEscalation(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(0, "100%")(u)
		seconds := v1.TimeoutSeconds(4)
		u.PodDeletion = &v1.PodDeletionSpec{TimeoutSeconds: &seconds}
		u.Drain = &v1.DrainSpec{Enable: pointer(true), TimeoutSeconds: &seconds, PodSelector: "keep!=true"}
	}})
	drained, free := nodeName(0), nodeName(1)
	e.deploy(workload{name: "training", node: drained, gpus: "1"}, 1)
	e.protect("hold", "training")
	e.deploy(workload{name: "web", node: drained}, 3)
	e.deploy(workload{name: "kept", node: drained, change: labelled("keep", "true")}, 1)
	training, web, kept := e.running("training"), e.running("web"), e.running("kept")
	mark, since := e.mark(), e.watch.now()
	e.install(after)
	e.awaitUpgraded(after, free)
	e.awaitProgress(drained, stateFailed, "drain.timeoutSeconds", "PDB default/hold allows 0 disruptions")
	e.Expect(e.statesOf(drained, since)).To(ContainElements(stateEviction, stateDrain, stateFailed))
	e.Expect(e.running("training")).To(Equal(training), "a PDB is never bypassed")
	e.Expect(e.running("kept")).To(Equal(kept), "the drain's selector leaves it out")
	e.Expect(e.running("web")).NotTo(ContainElements(web), "the drain evicts pods without GPUs")
	e.Expect(e.watch.node(drained).cordoned).To(BeFalse())
	e.Expect(e.watch.driver(drained).runs(before)).To(BeTrue())
	e.Expect(e.deletions(mark, driverApp)).To(HaveLen(1), "the driver of the other node")

	e.remove(budgetOf("hold"))
	e.annotate(drained, requestKey, "true")
	e.awaitUpgraded(after, drained)
	e.awaitRunning("training", 1)
	e.writesNothing()
}

// statesOf returns the states of a node since a version, each as often as it was entered.
func (e *env) statesOf(name string, since int64) []string {
	e.watch.lock.Lock()
	defer e.watch.lock.Unlock()
	var states []string
	last := ""
	for _, node := range e.watch.nodes {
		if node.name == name && node.version > since && node.state != last {
			last = node.state
			states = append(states, last)
		}
	}
	return states
}
