package migration

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestKilled kills the operator several times while it takes over what NVIDIA's has left; the last one completes it.
// TEST_FULL=1 kills it more often.
func TestKilled(t *testing.T) {
	cluster.SkipInSample(t)
	for name, runs := range map[string]stack{
		"two operating systems": ubuntus("24.04", "22.04"),
		"NVIDIADriver objects":  nvidiaDrivers(),
		"precompiled drivers":   precompiledDrivers(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, runs)
			e.install()
			e.kill()
			e.start()
			e.awaitPods(true)
			e.awaitReady(runs.state())
			e.undisturbed()
			e.ours()
			e.Expect(e.drivers()).To(HaveLen(runs.daemonSets))
			e.nothingLeft()
		})
	}
}

// kill starts the operator and kills it after some writes, several times or until it has completed.
func (e *env) kill() {
	e.t.Helper()
	after := []int{1, 24}
	if cluster.FullCampaigns() {
		after = []int{1, 2, 3, 5, 8, 1, 2, 3, 5, 8, 1, 2, 3, 5, 8, 1, 2, 3, 5, 8}
	}
	for times, writes := range after {
		mark := e.mark()
		e.start()
		e.Eventually(func() bool {
			return len(e.calls(mark).Writes()) >= writes || e.unfinished(true) == ""
		}).WithPolling(idle / 400).Should(BeTrue())
		e.stop()
		e.t.Logf("%d: killed after %d writes", times+1, len(e.calls(mark).Writes()))
		if e.unfinished(true) == "" {
			return
		}
	}
}
