package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// memoryBudget limits what the operator uses of memory for a number of nodes, in bytes.
type memoryBudget struct {
	nodes int
	// peak is that of the resident memory during the installation, and heap what is left of the heap at rest after it.
	peak, heap int64
	// restart is the peak of the resident memory after a restart, which reads all objects at once.
	restart int64
}

// memoryWatched returns the fleet: the large one takes minutes.
func memoryWatched() memoryBudget {
	if cluster.FullCampaigns() {
		return memoryBudget{nodes: 1000, peak: 120 << 20, heap: 37 << 20, restart: 140 << 20}
	}
	return memoryBudget{nodes: 300, peak: 78 << 20, heap: 18 << 20, restart: 110 << 20}
}

// TestBudgetsOfMemory installs a fleet with stages that last seconds.
func TestBudgetsOfMemory(t *testing.T) {
	cluster.SkipInSample(t)
	budget := memoryWatched()
	e := newEnv(t, envOptions{nodes: budget.nodes, timing: simulator.DefaultTiming(), shipped: true})
	metrics, err := cluster.FreeAddress()
	e.Expect(err).NotTo(HaveOccurred())
	flags := []string{"--metrics-bind-address=" + metrics, "--metrics-secure=false"}
	e.run(flags...)
	e.create(e.samplePolicy())
	// Three seconds a node, as memory is judged here, not time: the machine may be busy.
	took := e.awaitReadyWithin(time.Duration(3*budget.nodes)*time.Second, budget.nodes)
	usage, err := e.process.Usage()
	e.Expect(err).NotTo(HaveOccurred())
	e.settled()
	kept, err := cluster.KeptBy(t.Context(), metrics)
	e.Expect(err).NotTo(HaveOccurred())
	t.Logf("%d nodes, ready after %s: peak RSS %d MB, then %d KB of heap", budget.nodes, took.Round(time.Second),
		usage.PeakRSS>>20, kept.Live>>10)
	e.Expect(usage.PeakRSS).To(BeNumerically("<=", budget.peak), "RSS in bytes")
	e.Expect(kept.Live).To(BeNumerically("<=", budget.heap), "heap in bytes")

	e.stop()
	mark := e.mark()
	e.run(flags...)
	e.quietSince("restart", mark, 10*time.Second)
	usage, err = e.process.Usage()
	e.Expect(err).NotTo(HaveOccurred())
	t.Logf("after a restart: peak RSS %d MB", usage.PeakRSS>>20)
	e.Expect(usage.PeakRSS).To(BeNumerically("<=", budget.restart), "RSS in bytes")
}
