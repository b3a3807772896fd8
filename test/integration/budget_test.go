package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// fleetWatched returns how many nodes a cluster has whose operator is watched, and for how long it is watched at rest.
func fleetWatched() (nodes int, atRest time.Duration) {
	if cluster.Sampled() {
		return 20, 15 * time.Second
	}
	return 100, time.Minute
}

// TestBudgets counts the operator's requests with 100 nodes, from the API server's audit log, with stages that last
// seconds. The limits are those of the design.
func TestBudgets(t *testing.T) {
	fleet, atRest := fleetWatched()
	e := newEnv(t, envOptions{nodes: fleet, timing: simulator.DefaultTiming(), shipped: true})
	e.run()
	mark := e.mark()
	e.create(e.samplePolicy())
	took := e.awaitReady(fleet)
	usage, err := e.process.Usage()
	e.Expect(err).NotTo(HaveOccurred())
	t.Logf("to ready, %d nodes: %s; operator: RSS %d MB (peak %d), CPU %s", fleet, took.Round(100*time.Millisecond),
		usage.RSS>>20, usage.PeakRSS>>20, usage.CPU)
	e.withinBudget("to ready", mark, 4*fleet+60)
	// A hundred starting nodes use the whole machine. From here on this test mostly waits, in parallel with others.
	t.Parallel()
	e.settled()

	t.Run("at rest", func(t *testing.T) { e.in(t).quietFor("at rest", atRest) })
	t.Run("a pass that changes nothing", func(t *testing.T) {
		e := e.in(t)
		mark := e.mark()
		ds := e.daemonSet(pluginName)
		e.Expect(e.edit(ds, func() { ds.Labels["team"] = "hpc" })).To(Succeed())
		e.quietSince("no-op pass", mark, 3*time.Second)
	})
	t.Run("a node joins", func(t *testing.T) { nodeJoins(e.in(t), fleet+1) })
	t.Run("a pod is deleted", func(t *testing.T) { podDeleted(e.in(t), fleet+1) })
	t.Run("a restart", func(t *testing.T) {
		e := e.in(t)
		e.stop()
		mark := e.mark()
		e.run()
		e.quietSince("restart", mark, 10*time.Second)
	})
	t.Run("at rest with a node in a crash loop", func(t *testing.T) {
		cluster.SkipInSample(t)
		e, crashing := e.in(t), "gpu-00012"
		e.sim.Break("device-plugin", crashing, simulator.CrashLoop)
		e.deletePod("nvidia-device-plugin-daemonset", crashing)
		e.Eventually(func() *v1.NodeSummary { return e.policy().Status.NodeSummary }).
			Should(HaveField("Degraded", int32(1)))
		e.settled()
		before := e.restarts("nvidia-device-plugin-daemonset", crashing)
		e.quietFor("crash loop", atRest)
		e.Expect(e.restarts("nvidia-device-plugin-daemonset", crashing)).To(BeNumerically(">", before),
			"the pod must have continued to crash")
	})
}

// withinBudget compares the operator's writes since the mark with the budget.
func (e *env) withinBudget(what string, mark cluster.Mark, most int) {
	e.t.Helper()
	writes := e.operatorCalls(mark).Writes()
	e.t.Logf("%s: %d writes of at most %d", what, len(writes), most)
	e.Expect(len(writes)).To(BeNumerically("<=", most), "%s:\n%s", what, writes)
}

// settled waits until the operator is at rest: it has written nothing for as long as a write may be delayed.
func (e *env) settled() {
	e.t.Helper()
	mark, since := e.mark(), time.Now()
	e.Eventually(func() time.Duration {
		if writes := e.operatorCalls(mark).Writes(); len(writes) > 0 {
			since = writes[len(writes)-1].Time
		}
		return time.Since(since)
	}).WithTimeout(time.Minute).WithPolling(time.Second).Should(BeNumerically(">=", e.idle))
}

// quietFor watches the operator for a time in which it must neither write nor list, except for one look for other GPU
// software.
func (e *env) quietFor(what string, period time.Duration) {
	e.t.Helper()
	mark := e.mark()
	e.quietSince(what, mark, period)
	// A look for other GPU software may fall into the period: it is due every ten minutes, and earlier after a failure.
	selectors, err := neighbour.Selectors()
	e.Expect(err).NotTo(HaveOccurred())
	var looks, others cluster.Calls
	for _, call := range e.operatorCalls(mark).Lists() {
		if call.Resource == "pods" && call.Namespace == "" {
			looks = append(looks, call)
		} else {
			others = append(others, call)
		}
	}
	e.Expect(others.String()).To(BeEmpty(), what)
	e.Expect(len(looks)).To(BeNumerically("<=", len(selectors)), "%s: more than one look: %s", what, looks)
}

func (e *env) quietSince(what string, mark cluster.Mark, period time.Duration) {
	e.t.Helper()
	e.Consistently(func() string { return e.operatorCalls(mark).Writes().String() }).
		WithTimeout(period).WithPolling(time.Second).Should(BeEmpty(), what)
	e.t.Logf("%s: 0 writes in %s, lists: %d", what, period, len(e.operatorCalls(mark).Lists()))
}

// nodeJoins adds a node, after which there are so many.
func nodeJoins(e *env, nodes int) {
	mark := e.mark()
	_, err := e.sim.AddNodes(e.t.Context(), 1)
	e.Expect(err).NotTo(HaveOccurred())
	took := e.awaitReady(nodes)
	e.settled()
	writes := e.operatorCalls(mark).Writes()
	var labels, conditions, status, refused int
	for _, call := range writes {
		switch {
		case call.Resource == "nodes" && call.Code == http.StatusConflict:
			// Other clients also write to a joining node.
			refused++
		case call.Resource == "nodes" && call.Subresource == "":
			labels++
		case call.Resource == "nodes":
			conditions++
		case call.Resource == "clusterpolicies":
			status++
		}
	}
	e.t.Logf("node joins: ready after %s, %d label patches, %d condition patches, %d refused, %d policy status",
		took.Round(100*time.Millisecond), labels, conditions, refused, status)
	e.Expect(labels).To(BeNumerically("<=", 2), "%s", writes)
	e.Expect(conditions).To(BeNumerically("<=", 2), "%s", writes)
	e.Expect(status).To(BeNumerically("<=", 3), "%s", writes)
	e.Expect(refused).To(BeNumerically("<=", 1), "%s", writes)
	e.Expect(writes).To(HaveLen(labels+conditions+status+refused), "%s", writes)
}

// podDeleted deletes pods in a cluster of so many nodes.
func podDeleted(e *env, nodes int) {
	for app, budget := range map[string]int{
		"nvidia-device-plugin-daemonset": 3,
		// The modules go with the pod here, so that what has validated the driver is replaced: 2 deletions, 2 condition
		// patches and 3 policy status.
		"nvidia-driver-daemonset": 7,
	} {
		mark := e.mark()
		e.deletePod(app, "gpu-00007")
		e.Eventually(func() *corev1.Pod { return e.podOn(app, "gpu-00007") }).
			Should(And(Not(BeNil()), WithTransform(podReady, BeTrue())))
		e.awaitReady(nodes)
		e.settled()
		e.withinBudget("pod of "+app+" deleted", mark, budget)
	}
}

func (e *env) podOn(app, node string) *corev1.Pod {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace))).To(Succeed())
	for i := range pods.Items {
		// The DaemonSets of drivers and toolkits for other variants of nodes than the first have a name of their own.
		is := pods.Items[i].Labels["app"]
		isOf := is == app || (app == driverApp || app == toolkitApp) && strings.HasPrefix(is, app+"-")
		if isOf && pods.Items[i].Spec.NodeName == node && pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	return nil
}

func (e *env) deletePod(app, node string) {
	e.t.Helper()
	pod := e.podOn(app, node)
	e.Expect(pod).NotTo(BeNil(), "pod of %s on %s", app, node)
	e.Expect(e.client.Delete(e.t.Context(), pod)).To(Succeed())
}

func (e *env) restarts(app, node string) int {
	e.t.Helper()
	pod := e.podOn(app, node)
	e.Expect(pod).NotTo(BeNil())
	return int(pod.Status.ContainerStatuses[0].RestartCount)
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
