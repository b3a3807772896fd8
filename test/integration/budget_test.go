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
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	fleet = 100
	// atRest is how long the operator is watched when there is nothing to do.
	atRest = time.Minute
)

// TestBudgets counts the operator's own calls at 100 nodes, from the API server's audit log, with
// stages that last seconds. The limits are the design's.
func TestBudgets(t *testing.T) {
	b := newBed(t, bedOptions{nodes: fleet, timing: simulator.DefaultTiming(), shipped: true})
	b.run()
	mark := b.mark()
	b.create(b.samplePolicy())
	took := b.awaitReady(fleet)
	usage, err := b.process.Usage()
	b.Expect(err).NotTo(HaveOccurred())
	t.Logf("to ready, %d nodes: %s; operator: RSS %d MB (peak %d), CPU %s", fleet, took.Round(100*time.Millisecond),
		usage.RSS>>20, usage.PeakRSS>>20, usage.CPU)
	b.withinBudget("to ready", mark, 4*fleet+60)
	// A hundred nodes that start take the whole machine. From here on it mostly waits, beside the other stories.
	t.Parallel()
	b.settled()

	t.Run("at rest", func(t *testing.T) { b.in(t).quietFor("at rest", atRest) })
	t.Run("a pass that changes nothing", func(t *testing.T) {
		b := b.in(t)
		mark := b.mark()
		ds := b.daemonSet(pluginName)
		b.Expect(b.edit(ds, func() { ds.Labels["team"] = "hpc" })).To(Succeed())
		b.quietSince("no-op pass", mark, 3*time.Second)
	})
	t.Run("a node joins", func(t *testing.T) { nodeJoins(b.in(t)) })
	t.Run("a pod is deleted", func(t *testing.T) { podDeleted(b.in(t)) })
	t.Run("a restart", func(t *testing.T) {
		b := b.in(t)
		b.stop()
		mark := b.mark()
		b.run()
		b.quietSince("restart", mark, 10*time.Second)
	})
	t.Run("at rest with a node in a crash loop", func(t *testing.T) {
		b := b.in(t)
		b.sim.Break("device-plugin", "gpu-00042", simulator.CrashLoop)
		b.deletePod("nvidia-device-plugin-daemonset", "gpu-00042")
		b.Eventually(func() *v1.NodeSummary { return b.policy().Status.NodeSummary }).
			Should(HaveField("Degraded", int32(1)))
		b.settled()
		b.quietFor("crash loop", atRest)
		b.Expect(b.restarts("nvidia-device-plugin-daemonset", "gpu-00042")).To(BeNumerically(">", 3), "the pod must have gone on crashing")
	})
}

// withinBudget compares the operator's writes since the mark with what it may need.
func (b *bed) withinBudget(what string, mark cluster.Mark, most int) {
	b.t.Helper()
	writes := b.operatorCalls(mark).Writes()
	b.t.Logf("%s: %d writes of at most %d", what, len(writes), most)
	b.Expect(len(writes)).To(BeNumerically("<=", most), "%s:\n%s", what, writes)
}

// settled waits until what is written late has been written: from now on nothing for as long as a write may be held back.
func (b *bed) settled() {
	b.t.Helper()
	mark, since := b.mark(), time.Now()
	b.Eventually(func() time.Duration {
		if writes := b.operatorCalls(mark).Writes(); len(writes) > 0 {
			since = writes[len(writes)-1].Time
		}
		return time.Since(since)
	}).WithTimeout(time.Minute).WithPolling(time.Second).Should(BeNumerically(">=", b.idle))
}

// quietFor watches the operator for a while in which it must neither write nor list.
func (b *bed) quietFor(what string, period time.Duration) {
	b.t.Helper()
	mark := b.mark()
	b.quietSince(what, mark, period)
	b.Expect(b.operatorCalls(mark).Lists().String()).To(BeEmpty(), what)
}

func (b *bed) quietSince(what string, mark cluster.Mark, period time.Duration) {
	b.t.Helper()
	b.Consistently(func() string { return b.operatorCalls(mark).Writes().String() }).
		WithTimeout(period).WithPolling(time.Second).Should(BeEmpty(), what)
	b.t.Logf("%s: 0 writes in %s, lists: %d", what, period, len(b.operatorCalls(mark).Lists()))
}

func nodeJoins(b *bed) {
	mark := b.mark()
	_, err := b.sim.AddNodes(b.t.Context(), 1)
	b.Expect(err).NotTo(HaveOccurred())
	took := b.awaitReady(fleet + 1)
	b.settled()
	writes := b.operatorCalls(mark).Writes()
	var labels, conditions, status, refused int
	for _, call := range writes {
		switch {
		case call.Resource == "nodes" && call.Code == http.StatusConflict:
			// Others write to a node that joins, too.
			refused++
		case call.Resource == "nodes" && call.Subresource == "":
			labels++
		case call.Resource == "nodes":
			conditions++
		case call.Resource == "clusterpolicies":
			status++
		}
	}
	b.t.Logf("node joins: ready after %s, %d label patches, %d condition patches, %d refused, %d policy status",
		took.Round(100*time.Millisecond), labels, conditions, refused, status)
	b.Expect(labels).To(BeNumerically("<=", 2), "%s", writes)
	b.Expect(conditions).To(BeNumerically("<=", 2), "%s", writes)
	b.Expect(status).To(BeNumerically("<=", 3), "%s", writes)
	b.Expect(refused).To(BeNumerically("<=", 1), "%s", writes)
	b.Expect(writes).To(HaveLen(labels+conditions+status+refused), "%s", writes)
}

func podDeleted(b *bed) {
	for _, app := range []string{"nvidia-device-plugin-daemonset", "nvidia-driver-daemonset"} {
		mark := b.mark()
		b.deletePod(app, "gpu-00007")
		b.Eventually(func() *corev1.Pod { return b.podOn(app, "gpu-00007") }).
			Should(And(Not(BeNil()), WithTransform(podReady, BeTrue())))
		b.awaitReady(fleet + 1)
		b.settled()
		b.withinBudget("pod of "+app+" deleted", mark, 3)
	}
}

func (b *bed) podOn(app, node string) *corev1.Pod {
	b.t.Helper()
	pods := &corev1.PodList{}
	b.Expect(b.client.List(b.t.Context(), pods, client.InNamespace(namespace))).To(Succeed())
	for i := range pods.Items {
		// The DaemonSets of drivers and toolkits for other kinds of nodes than the first have a name of their own.
		is := pods.Items[i].Labels["app"]
		isOf := is == app || (app == driverApp || app == toolkitApp) && strings.HasPrefix(is, app+"-")
		if isOf && pods.Items[i].Spec.NodeName == node && pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	return nil
}

func (b *bed) deletePod(app, node string) {
	b.t.Helper()
	pod := b.podOn(app, node)
	b.Expect(pod).NotTo(BeNil(), "pod of %s on %s", app, node)
	b.Expect(b.client.Delete(b.t.Context(), pod)).To(Succeed())
}

func (b *bed) restarts(app, node string) int {
	b.t.Helper()
	pod := b.podOn(app, node)
	b.Expect(pod).NotTo(BeNil())
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
