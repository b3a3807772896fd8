package migration

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestKilled kills the operator several times while it takes over what NVIDIA's has left; the last one completes it.
// TEST_FULL=1 kills it more often.
func TestKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t, ubuntus("24.04", "22.04"))
	e.install()
	after := []int{1, 24}
	if cluster.FullCampaigns() {
		after = []int{1, 2, 3, 5, 8, 1, 2, 3, 5, 8, 1, 2, 3, 5, 8, 1, 2, 3, 5, 8}
	}
	for _, writes := range after {
		mark := e.mark()
		e.start()
		e.Eventually(func() int { return len(e.calls(mark).Writes()) }).WithPolling(idle / 400).
			Should(BeNumerically(">=", writes))
		e.stop()
		t.Logf("killed after %d writes", len(e.calls(mark).Writes()))
	}
	e.start()
	e.awaitPods(true)
	e.awaitReady(v1.StateNotReady)
	e.undisturbed()
	e.ours()
	e.nothingLeft()
}
