package upgrades

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// steps are the states of an upgrade in which a user may intervene.
var steps = []string{stateRequired, stateEviction, stateRestart, stateValidation}

// TestEachStep: a user cordons a node, uncordons it, or deletes and adds it again, in each step of its upgrade. What a
// user has cordoned stays cordoned, an uncordon is not undone, and a new node begins anew.
func TestEachStep(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	actions := map[string]func(e *env, node, step string){
		"cordons": (*env).cordonedAt, "uncordons": (*env).uncordonedAt, "replaces": (*env).replacedAt,
	}
	e := newEnv(t, envOptions{nodes: len(actions) * len(steps), scale: 0.5, policy: budget(0, "100%")})
	for i := range len(actions) * len(steps) {
		node := nodeName(i)
		e.label(node, skipLabel, "true")
		if steps[i%len(steps)] == stateEviction {
			e.deploy(workload{name: "user-" + node, node: node, gpus: "1"}, 1)
			e.protect("hold-"+node, "user-"+node)
		}
	}
	e.install(after)
	t.Run("a user", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(actions)) {
			for k, step := range steps {
				t.Run(fmt.Sprintf("%s a node at %s", name, step), func(t *testing.T) {
					t.Parallel()
					actions[name](e.in(t), nodeName(i*len(steps)+k), step)
				})
			}
		}
	})
	e.writesNothing()
}

// at lets the upgrade of the node begin, except for the first step, waits until it is in the step, and returns its
// version.
func (e *env) at(node, step string) nodeVersion {
	e.t.Helper()
	if step != stateRequired {
		e.label(node, skipLabel, "")
	}
	var at nodeVersion
	e.Eventually(func() string {
		at = e.watch.node(node)
		return at.state
	}).WithTimeout(upgradeTime).WithPolling(5 * time.Millisecond).Should(Equal(step))
	return at
}

// cordonedAt cordons a node, if the upgrade has not done so already: a second cordon would change nothing.
func (e *env) cordonedAt(node, step string) {
	at := e.at(node, step)
	if !at.cordoned {
		e.cordon(node, true)
	}
	e.pass(node, step)
	e.Eventually(func() bool { return e.watch.driver(node).runs(after) }).WithTimeout(upgradeTime).Should(BeTrue())
	e.awaitState(node, stateDone)
	e.Expect(e.watch.node(node).cordoned).To(Equal(!at.cordoned), "a cordon of the user, on a node that had none, stays")
	if !at.cordoned {
		e.cordon(node, false)
	}
}

func (e *env) uncordonedAt(node, step string) {
	e.at(node, step)
	e.cordon(node, false)
	since := e.watch.now()
	e.pass(node, step)
	e.Eventually(func() string { return e.watch.node(node).state }).WithTimeout(upgradeTime).Should(
		Or(Equal(stateDone), Equal(stateFailed)))
	ours := 0
	for _, c := range e.watch.changes(since) {
		if c.name == node && c.ours && c.cordoned {
			ours++
		}
	}
	if step == stateRequired {
		e.Expect(ours).To(Equal(1), "the upgrade has not begun, so it cordons the node later")
		return
	}
	e.Expect(ours).To(BeZero(), "the user's uncordon is not undone")
	e.Expect(e.watch.node(node).cordoned).To(BeFalse())
}

func (e *env) replacedAt(node, step string) {
	old := e.at(node, step).uid
	e.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	e.Eventually(func() string { return e.watch.node(node).name }).Should(BeEmpty())
	e.addNode(node)
	e.pass(node, step)
	e.Eventually(func() string {
		now, driver := e.watch.node(node), e.watch.driver(node)
		if now.uid != old && !now.cordoned && now.gpuReady && driver.runs(after) {
			return ""
		}
		return fmt.Sprintf("cordoned %t, GPUReady %t, driver %s, %s", now.cordoned, now.gpuReady, driver.image,
			e.progress(node))
	}).WithTimeout(upgradeTime).Should(BeEmpty())
}

// pass lets the upgrade of the node go on, if it was held in the step.
func (e *env) pass(node, step string) {
	e.t.Helper()
	switch step {
	case stateRequired:
		e.label(node, skipLabel, "")
	case stateEviction:
		e.allow(node)
	}
}
