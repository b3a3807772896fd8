package upgrades

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// States of the label, as dashboards read them.
const (
	stateRequired   = "upgrade-required"
	stateWait       = "wait-for-jobs-required"
	stateEviction   = "pod-deletion-required"
	stateDrain      = "drain-required"
	stateRestart    = "pod-restart-required"
	stateValidation = "validation-required"
	stateDone       = "upgrade-done"
	stateFailed     = "upgrade-failed"
)

// awaitReady waits until the policy and all nodes are ready.
func (e *env) awaitReady(nodes int) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		policy := e.policy()
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status.Conditions)
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		g.Expect(policy.Status.NodeSummary.ReadyOfTotal).To(Equal(fmt.Sprintf("%d/%d", nodes, nodes)))
		g.Expect(e.watch.ready()).To(HaveLen(nodes))
	}).WithTimeout(readyTime).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// atRest waits until the operator has written nothing for as long as a write may be delayed.
func (e *env) atRest() {
	e.t.Helper()
	mark, since := e.mark(), time.Now()
	e.Eventually(func() time.Duration {
		if writes := e.calls(mark).Writes(); len(writes) > 0 {
			since = writes[len(writes)-1].Time
		}
		return time.Since(since)
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(BeNumerically(">=", idle))
}

// writesNothing checks that the operator is at rest for good: it writes nothing in a period.
func (e *env) writesNothing() {
	e.t.Helper()
	e.atRest()
	mark := e.mark()
	e.Consistently(func() string { return e.calls(mark).Writes().String() }).
		WithTimeout(idle).WithPolling(500*time.Millisecond).Should(BeEmpty(), "writes when done")
}

// awaitUpgraded waits until these nodes have the version, and their upgrade is done: the driver pod of the version is
// ready, the label says so, the GPUs can be used, and the node is schedulable.
func (e *env) awaitUpgraded(version string, nodes ...string) {
	e.t.Helper()
	e.awaitUpgradedIn(upgradeTime, version, nodes...)
}

// awaitUpgradedIn is awaitUpgraded with another timeout, for fleets that are upgraded in many rounds.
func (e *env) awaitUpgradedIn(timeout time.Duration, version string, nodes ...string) {
	e.t.Helper()
	e.Eventually(func() []string { return e.notUpgraded(version, nodes) }).WithTimeout(timeout).
		WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

func (e *env) notUpgraded(version string, nodes []string) []string {
	var left []string
	for _, name := range nodes {
		node, driver := e.watch.node(name), e.watch.driver(name)
		if !driver.runs(version) || node.state != stateDone || node.cordoned || !node.gpuReady {
			left = append(left, fmt.Sprintf("%s: driver %s ready %t, state %s, cordoned %t, GPUReady %t", name, driver.image,
				driver.ready, node.state, node.cordoned, node.gpuReady))
		}
	}
	if len(left) > 0 {
		left = append(left, e.progresses(nodes)...)
	}
	return left
}

// progresses describes the upgrades that the policy's status lists.
func (e *env) progresses(nodes []string) []string {
	var all []string
	for _, n := range e.policy().Status.Nodes {
		if n.Upgrade != nil && slices.Contains(nodes, n.Name) {
			all = append(all, n.Name+": "+described(n.Upgrade))
		}
	}
	return all
}

// pending returns how many nodes wait for an upgrade, by the policy's status.
func (e *env) pending() int32 {
	upgrade := e.policy().Status.Upgrade
	if upgrade == nil {
		return 0
	}
	return upgrade.Pending
}

// awaitState waits until the node is in the state.
func (e *env) awaitState(name, state string) {
	e.t.Helper()
	e.Eventually(func() string { return e.watch.node(name).state }).WithTimeout(upgradeTime).Should(Equal(state),
		"state of %s: %s", name, e.progress(name))
}

// progress describes the upgrade of a node, as in the policy's status.
func (e *env) progress(name string) string {
	status := e.policy().Status
	i := slices.IndexFunc(status.Nodes, func(n v1.NodeStatus) bool { return n.Name == name })
	if i < 0 || status.Nodes[i].Upgrade == nil {
		return "none"
	}
	return described(status.Nodes[i].Upgrade)
}

func described(u *v1.NodeUpgradeStatus) string {
	return fmt.Sprintf("%s held=%t %s: %s", u.State, u.Held, u.Reason, u.Message)
}

// awaitProgress waits until the policy's status says all of this of the node's upgrade.
func (e *env) awaitProgress(name string, words ...string) {
	e.t.Helper()
	if len(words) == 0 {
		return
	}
	e.Eventually(func() string { return e.progress(name) }).WithTimeout(upgradeTime).Should(
		And(contain(words)...), "status of %s", name)
}

// evictions returns the pods that the operator has evicted since the mark, in order.
func (e *env) evictions(mark cluster.Mark) []string {
	var evicted []string
	for _, call := range e.calls(mark) {
		if call.Resource == "pods" && call.Subresource == "eviction" && call.Code < http.StatusBadRequest {
			evicted = append(evicted, call.Namespace+"/"+call.Name)
		}
	}
	return evicted
}

// deletions returns the pods of users, and those of the operator with a name that starts so, that the operator has
// deleted since the mark.
func (e *env) deletions(mark cluster.Mark, prefix string) []string {
	var deleted []string
	for _, call := range e.calls(mark) {
		if call.Resource == "pods" && call.Verb == "delete" && call.Code < http.StatusBadRequest &&
			(call.Namespace != namespace || strings.HasPrefix(call.Name, prefix)) {
			deleted = append(deleted, call.Namespace+"/"+call.Name)
		}
	}
	return deleted
}

// nodeWrites counts the operator's writes of each node since the mark.
func (e *env) nodeWrites(mark cluster.Mark) map[string]int {
	counts := map[string]int{}
	for _, call := range e.calls(mark).Writes().Of("nodes") {
		if call.Code < http.StatusBadRequest {
			counts[call.Name]++
		}
	}
	return counts
}

func contain(words []string) []OmegaMatcher {
	var matchers []OmegaMatcher
	for _, word := range words {
		matchers = append(matchers, ContainSubstring(word))
	}
	return matchers
}
